"""The base classes of the Google Cloud drivers: errors, operations, and Compute Engine's API."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar
from uuid import uuid4

from cloudrec.engine.graph import Condition, Observed, P_contra, Properties
from cloudrec.providers.base.driver import is_ours, name_of
from cloudrec.providers.base.operated import OperatedDriver
from cloudrec.providers.gcp import errors
from cloudrec.providers.gcp.api import ids, labels, operations
from cloudrec.providers.gcp.layout import TAG_REGION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.engine.graph import ErrorVerdict, Resource
    from cloudrec.errors import CloudrecError
    from cloudrec.providers.base.operated import OperationProgress
    from cloudrec.providers.gcp.api import sdk
    from cloudrec.providers.gcp.api.client import Gcp, Method

_STATES: Mapping[str, Condition] = {
    "CREATING": Condition.PENDING,
    "PENDING": Condition.PENDING,
    "DELETING": Condition.DELETING,
    "FAILED": Condition.FAILED,
    "INVALID": Condition.FAILED,
}


class GcpDriver(OperatedDriver[P_contra]):
    """Handles one kind of Google Cloud resource. An identity is the resource's path, as `ids` formats it."""

    refusals = errors.REFUSALS
    poll_s = 1.0

    def __init__(self, gcp: Gcp) -> None:
        super().__init__()
        self.gcp = gcp

    def progress(self, operation: str) -> OperationProgress:
        """Read the operation once and return its progress."""
        return operations.look(self.gcp, operation)

    def is_absent(self, error: Exception) -> bool:
        """Return whether the error means that the resource or its parent does not exist."""
        return errors.is_absent(error)

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Classify the error by Google's reason and message: whether the call may be repeated."""
        return errors.verdict(error, self.gcp.fresh)

    def explain(self, error: Exception) -> CloudrecError:
        """Return the error with a message and a remedy for the user."""
        return errors.explain(error)

    def is_mine(self, tags: Mapping[str, str], cluster: str | None) -> bool:
        """Return whether the tags name this cluster (any cluster when None) and this region."""
        # Global resources are listed in every region; their tag names the region that they belong to.
        return is_ours(tags, cluster) and tags.get(TAG_REGION, self.gcp.region) == self.gcp.region


@dataclass(frozen=True, kw_only=True)
class ComputeProperties(Properties):
    """The requested properties that every Compute Engine resource has.

    Attributes:
        path: "projects/P/global/networks/NAME", or with regions/REGION instead of global.
    """

    path: str


class Described(Protocol):
    """The fields of a Compute Engine resource whose description holds the tags."""

    name: str
    description: str
    self_link: str
    creation_timestamp: str


Row = TypeVar("Row", bound=Described)  # the SDK's message type
Row_co = TypeVar("Row_co", covariant=True)
C_contra = TypeVar("C_contra", contravariant=True, bound=ComputeProperties)


class ComputeCalls(Protocol[Row_co]):
    """The client methods of one Compute Engine collection; `ids.arguments` makes the requests."""

    def get(self, request: dict[str, object], *, retry: None, timeout: float) -> Row_co:
        """Return one resource."""

    def list(self, request: dict[str, object], *, retry: None, timeout: float) -> Iterable[Row_co]:
        """Return all resources of the collection."""

    def insert_unary(
        self, request: dict[str, object], *, retry: None, timeout: float
    ) -> sdk.compute.Operation:
        """Start the creation of one resource."""

    def delete_unary(
        self, request: dict[str, object], *, retry: None, timeout: float
    ) -> sdk.compute.Operation:
        """Start the deletion of one resource."""


class ComputeDriver(GcpDriver[C_contra], Generic[Row, C_contra]):
    """Handles one kind of Compute Engine resource.

    A resource without labels has its tags in its description.

    Attributes:
        noun: the resource's name in the fields of requests.
        is_regional: whether the collection belongs to a region; False for a global one.
        holds_data: as in `Observed`.
        charge: USD per hour of each resource; None if the price is unknown or not the same for all.
    """

    noun: ClassVar[str]
    is_regional: ClassVar[bool] = False
    holds_data: ClassVar[bool] = False
    charge: ClassVar[float | None] = None

    @property
    @abstractmethod
    def calls(self) -> ComputeCalls[Row]:
        """The client of this collection."""

    @abstractmethod
    def body(self, resource: Resource[C_contra]) -> Row:
        """Return the message for the requested resource, without its name and description."""

    def properties(self, row: Row) -> Mapping[str, object]:
        """Return the observed properties, which drift compares with the requested ones."""
        del row
        return {}

    def tags(self, row: Row) -> Mapping[str, str]:
        """Return the tags of a listed resource."""
        return labels.described(row.description)

    def state(self, row: Row) -> Condition:
        """Return the condition that the resource itself reports."""
        del row
        return Condition.READY

    def hourly_usd(self, row: Row) -> float | None:
        """Return the price in USD per hour; None if it is unknown."""
        del row
        return self.charge

    def list_rows(self) -> list[Row]:
        """List the project's resources of this kind: global ones, or those of this region."""
        where: dict[str, object] = {"region": self.gcp.region} if self.is_regional else {}
        return self.gcp.rows(self.calls.list, {"project": self.gcp.project, **where})

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the resources that have the cluster's tags."""
        return [self.observe(row) for row in self.list_rows() if self.is_mine(self.tags(row), cluster)]

    def fetch(self, resource: Resource[C_contra]) -> Observed | None:
        """Read the resource by its path; None if it does not exist."""
        row = self.gcp.get(self.calls.get, ids.arguments(resource.properties.path))
        return None if row is None else self.observe(row)

    def row(self, identity: str) -> Row:
        """Read a resource by its identity; raises NotFound if it does not exist."""
        return self.gcp.read(self.calls.get, ids.arguments(identity))

    def look(self, identity: str) -> tuple[Condition, str]:
        """Read the resource and return its condition."""
        return self.state(self.row(identity)), ""

    def make(self, resource: Resource[C_contra], *, token: str, identities: Mapping[str, str]) -> str:
        """Insert the resource; Google answers a repeated token with the same operation."""
        del identities
        path = resource.properties.path
        where = ids.arguments(path)
        row = self.document(resource, str(where.pop(self.noun)))
        request = {**where, f"{self.noun}_resource": row}
        return self.start(path, self.calls.insert_unary, request, token=token)

    def document(self, resource: Resource[C_contra], name: str) -> Row:
        """Return the message for the requested resource, named, and with its tags in the description."""
        row = self.body(resource)
        row.name, row.description = name, labels.describe(resource.tags)
        return row

    def start(
        self,
        identity: str,
        call: Method[dict[str, object], sdk.compute.Operation],
        request: Mapping[str, object],
        *,
        token: str = "",
        is_removal: bool = False,
    ) -> str:
        """Start a change, and return the identity of the resource.

        Args:
            identity: of the resource.
            call: the client's method.
            request: the fields of the request, without its id.
            token: the idempotency token of the first attempt. A further attempt has a new one: Google answers
                a token that it knows with the operation that failed.
            is_removal: whether the change deletes the resource.
        """
        tokens = iter([token] if token else [])

        def once() -> str:
            fields = {**request, "request_id": next(tokens, "") or str(uuid4())}
            return operations.of_compute(self.gcp.call(call, fields))

        return self.begin(identity, once, is_removal=is_removal)

    def remove(self, observed: Observed) -> None:
        """Start the deletion of the resource."""
        identity = observed.identity
        self.start(identity, self.calls.delete_unary, ids.arguments(identity), is_removal=True)

    def observe(self, row: Row) -> Observed:
        """Return a described resource as the engine's `Observed`."""
        tags = dict(self.tags(row))
        return Observed(
            kind=self.kind,
            name=name_of(tags, row.name),
            identity=ids.known(row.self_link),
            condition=self.state(row),
            properties=self.properties(row),
            tags=tags,
            hourly_usd=self.hourly_usd(row),
            holds_data=self.holds_data,
            location=self.gcp.region,
            created=moment(row.creation_timestamp),
        )


def state_of(status: str) -> Condition:
    """Return the condition for a Compute Engine status; READY for any other, such as an empty one."""
    return _STATES.get(status, Condition.READY)


def moment(text: str) -> float | None:
    """Parse an RFC 3339 time into seconds since the epoch; None if the text is empty or no time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None

"""What all drivers of Google Cloud share: its errors, its operations, and Compute Engine's ways."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from cloudrec.cloud.driver import is_ours, name_of
from cloudrec.cloud.operated import OperatedDriver
from cloudrec.engine.graph import Condition, Observed
from cloudrec.providers.gcp import errors, ids, labels, operations
from cloudrec.providers.gcp.layout import TAG_REGION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.cloud.operated import Progress
    from cloudrec.engine.graph import Resource, Verdict
    from cloudrec.errors import CloudrecError
    from cloudrec.providers.gcp.client import Gcp

_STATES: Mapping[str, Condition] = {
    "CREATING": Condition.PENDING,
    "PENDING": Condition.PENDING,
    "DELETING": Condition.DELETING,
    "FAILED": Condition.FAILED,
    "INVALID": Condition.FAILED,
}


class GcpDriver(OperatedDriver):
    """Handles one kind of Google's resources. Identities are paths, as `ids` writes them."""

    refusals = errors.REFUSALS
    poll_s = 1.0

    def __init__(self, gcp: Gcp) -> None:
        super().__init__()
        self.gcp = gcp

    def progress(self, operation: str) -> Progress:
        """Ask for the operation."""
        return operations.look(self.gcp, operation)

    def is_absent(self, error: Exception) -> bool:
        """Tell whether the thing, or what it would be in, is not there."""
        return errors.is_absent(error)

    def verdict(self, error: Exception) -> Verdict:
        """Tell by Google's reason, and by what it says, whether the call may be made again."""
        return errors.verdict(error, self.gcp.fresh)

    def explain(self, error: Exception) -> CloudrecError:
        """Say what Google's error means."""
        return errors.explain(error)

    def is_mine(self, tags: Mapping[str, str], cluster: str | None) -> bool:
        """Tell whether the tags say that it is of this cluster, or of any of ours, in this region."""
        return is_ours(tags, cluster) and tags.get(TAG_REGION, self.gcp.region) == self.gcp.region


class ComputeDriver(GcpDriver):
    """Handles one kind of Compute Engine's resources, under a name of ours.

    A resource's property `path` is where it is to be; what has no labels bears its tags in its description.
    """

    collection: ClassVar[str]  # the client's, as `Gcp.compute` takes it
    noun: ClassVar[str]  # what requests call one
    is_regional: ClassVar[bool] = False  # whether each region has its own
    holds_data: ClassVar[bool] = False

    @abstractmethod
    def body(self, resource: Resource, identities: Mapping[str, str]) -> dict[str, Any]:
        """Return what is asked for, as the SDK's message has it, without name and description."""

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's message
        """Tell what drift is told from."""
        del row
        return {}

    def tags(self, row: Any) -> Mapping[str, str]:  # noqa: ANN401 - the SDK's message
        """Tell its tags."""
        return labels.described(row.description)

    def born_with(self, resource: Resource) -> dict[str, Any]:
        """Return the fields that hold its tags."""
        return {"description": labels.describe(resource.tags)}

    def state(self, row: Any) -> Condition:  # noqa: ANN401 - the SDK's message
        """Tell how far it has come, as far as it tells by itself."""
        status = getattr(row, "state", "") or getattr(row, "status", "")
        return _STATES.get(str(status), Condition.READY)

    def hourly_usd(self, row: Any) -> float:  # noqa: ANN401 - the SDK's message
        """Tell what it costs an hour."""
        del row
        return 0.0

    @property
    def calls(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The client's methods for this kind."""
        return self.gcp.compute(self.collection)

    def list_rows(self) -> list[Any]:
        """List all of the project, in this region where each has its own."""
        where = {"region": self.gcp.region} if self.is_regional else {}
        return self.gcp.rows(self.calls.list, project=self.gcp.project, **where)

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List, and keep what bears our tags."""
        return [self.observe(row) for row in self.list_rows() if self.is_mine(self.tags(row), cluster)]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look it up by its path."""
        row = self.gcp.get(self.calls.get, **ids.arguments(resource.properties["path"]))
        return None if row is None else self.observe(row)

    def row(self, identity: str) -> Any:  # noqa: ANN401 - the SDK's message
        """Read it by its identity; Google's own error where it is not there."""
        return self.gcp.read(self.calls.get, **ids.arguments(identity))

    def look(self, identity: str) -> tuple[Condition, str]:
        """Read it by its identity."""
        return self.state(self.row(identity)), ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Insert it; the same token gives the same operation."""
        path = resource.properties["path"]
        where = ids.arguments(path)
        name = where.pop(self.noun)
        document = {"name": name, **self.born_with(resource), **self.body(resource, identities)}
        return self.start(path, "insert", {**where, f"{self.noun}_resource": document}, token=token)

    def start(
        self,
        identity: str,
        method: str,
        request: Mapping[str, object],
        *,
        token: str = "",
        is_removal: bool = False,
    ) -> str:
        """Begin a change, and return the thing's identity.

        Args:
            identity: of the thing.
            method: the client's, without its `_unary`.
            request: fields of the request, but its id.
            token: the idempotency token of the first attempt; another is made when it is begun again, since
                the same one would be answered with the operation that failed.
            is_removal: whether it takes the thing away.
        """
        tokens = iter([token] if token else [])
        call = getattr(self.calls, f"{method}_unary")

        def once() -> str:
            return operations.of_compute(
                self.gcp.call(call, **request, request_id=next(tokens, "") or str(uuid4()))
            )

        return self.begin(identity, once, is_removal=is_removal)

    def remove(self, observed: Observed) -> None:
        """Delete it."""
        self.start(observed.identity, "delete", ids.arguments(observed.identity), is_removal=True)

    def observe(self, row: Any) -> Observed:  # noqa: ANN401 - the SDK's message
        """Tell of what Google describes what the engine wants to know."""
        tags = dict(self.tags(row))
        return Observed(
            kind=self.kind,
            name=name_of(tags, row.name),
            identity=ids.path(row.self_link),
            condition=self.state(row),
            properties=self.properties(row),
            tags=tags,
            hourly_usd=self.hourly_usd(row),
            holds_data=self.holds_data,
            location=self.gcp.region,
            created=moment(row.creation_timestamp),
        )


def moment(text: str) -> float | None:
    """Return a time that Google writes as text in seconds since the epoch; None where it writes none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None

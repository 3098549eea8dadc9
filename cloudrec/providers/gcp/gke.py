"""What GKE's clusters and pools of nodes share: their states, and changes that it makes one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import is_ours
from cloudrec.cloud.layout import shortened
from cloudrec.cloud.operated import OperationFailedError
from cloudrec.engine.graph import Condition
from cloudrec.providers.gcp import errors, ids, labels, operations
from cloudrec.providers.gcp.driver import GcpDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.providers.gcp.client import Gcp

    Step = Callable[[], str]  # makes a changing call, and returns its operation

CLUSTER = "cluster"
PREFIX = "cloudrec-"  # of every cluster's name; the title follows
CONTAINER = "container"  # GKE's API
LABEL = "cloudrec.io/nodes"  # cpu or gpu
POOL_LABEL = "cloud.google.com/gke-nodepool"  # GKE's own, on every node
RUNNING = "RUNNING"
# What a cluster or pool is that has a problem and works all the same.
IMPAIRED = frozenset({"DEGRADED", "RUNNING_WITH_ERROR"})
_STATES: Mapping[str, Condition] = {
    "PROVISIONING": Condition.PENDING,
    "RECONCILING": Condition.PENDING,
    RUNNING: Condition.READY,
    "STOPPING": Condition.DELETING,
    "ERROR": Condition.FAILED,
    "DEGRADED": Condition.FAILED,
    "RUNNING_WITH_ERROR": Condition.FAILED,
}
_LONGEST = 40  # characters of a cluster's name
_RESOURCE_EXHAUSTED = 8  # of google.rpc.Code
_UNDECIDED = frozenset({Condition.PENDING, Condition.FAILED, Condition.UNAVAILABLE})


class GkeDriver(GcpDriver):
    """Handles clusters or pools of nodes.

    GKE makes one change of a cluster at a time, each an operation of minutes. A change that takes several is
    given to `begin_all`: the next is begun, in `condition`, when the one before it has ended.
    """

    poll_s = 3.0

    def __init__(self, gcp: Gcp) -> None:
        super().__init__(gcp)
        self._steps: dict[str, list[Step]] = {}  # what is still to be begun, by identity

    @property
    def gke(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """GKE's client."""
        return self.gcp.client(CONTAINER)

    def clusters(self, cluster: str | None) -> list[Any]:
        """List this cluster of ours, or all of ours in this region, with their pools."""
        return [row for row in listed(self.gcp) if is_ours(labels.decode(row.resource_labels), cluster)]

    def path(self, row: Any) -> str:  # noqa: ANN401 - the SDK's message
        """Return the path of a cluster, as it is described."""
        return f"projects/{self.gcp.project}/locations/{row.location}/clusters/{row.name}"

    def asked(self, method: Callable[..., Any], **request: object) -> Step:
        """Return a step that makes a changing call of GKE's.

        Args:
            method: the client's.
            request: fields of its request.
        """
        return lambda: operations.of_container(self.gcp, self.gcp.call(method, **request))

    def begin_all(self, identity: str, steps: Sequence[Step]) -> str:
        """Begin several changes of a thing, one after another, and return the thing's identity."""
        first, *others = steps
        self._steps[identity] = others
        return self.begin(identity, first)

    def begin_once(self, identity: str, step: Step) -> str:
        """Begin what cannot be begun anew where it fails, since GKE keeps what it has made until then."""
        operation = step()
        self.forget(identity)
        self.resume(identity, operation)
        return identity

    def forget(self, identity: str) -> None:
        """Follow no operation on a thing any more, and begin none."""
        with self._lock:
            self._changes.pop(identity, None)
        self._steps.pop(identity, None)

    def is_leaving(self, identity: str) -> bool:
        """Tell whether the removal of a thing is under way, as far as this process knows."""
        return (change := self._changes.get(identity)) is not None and change.is_removal

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Ask the operation how far the thing has come; when one has ended, begin the next."""
        is_followed = identity in self._changes
        condition, reason = super().condition(kind, identity)
        if not is_followed and condition in _UNDECIDED and self._follow(identity):
            condition, reason = super().condition(kind, identity)
        steps = self._steps.get(identity)
        if condition is Condition.READY and steps:
            self.begin(identity, steps[0])
            del steps[0]
            return Condition.PENDING, ""
        return condition, reason

    def _follow(self, identity: str) -> bool:
        """Find the operation of a process that has ended: it alone may tell why a change failed."""
        operation = operations.begun(self.gcp, ids.location(identity), identity)
        if operation:
            self.resume(identity, operation)
        return bool(operation)

    def told_by(self, row: Any) -> tuple[Condition, str]:  # noqa: ANN401 - the SDK's message
        """Tell how far a cluster or pool has come, and why it failed, as far as the thing itself tells."""
        state = row.status.name
        condition = _STATES.get(state, Condition.PENDING)
        if condition is not Condition.FAILED:
            return condition, ""
        return (Condition.UNAVAILABLE if shortage(row) else condition), problem(row) or f"it is {state}"


def cluster_name(title: str) -> str:
    """Return GKE's name of a cluster."""
    return shortened(f"{PREFIX}{title}", _LONGEST)


def listed(gcp: Gcp) -> list[Any]:
    """List the clusters of this region whose names are like ours, with their pools."""
    calls = gcp.client(CONTAINER)
    rows = gcp.read(calls.list_clusters, parent=f"projects/{gcp.project}/locations/-").clusters
    return [row for row in rows if row.name.startswith(PREFIX) and region_of(row.location) == gcp.region]


def shortage(row: Any) -> str:  # noqa: ANN401 - the SDK's message
    """Say what a cluster or pool lacks that Google does not have, or gives no more of; empty if nothing."""
    told = [OperationFailedError(_code(each), each.message) for each in row.conditions]
    told.append(OperationFailedError("", row.status_message))
    return problem(row) if any(errors.is_capacity(each) for each in told) else ""


def problem(row: Any) -> str:  # noqa: ANN401 - the SDK's message
    """Say what GKE says is wrong with a cluster or pool."""
    told = [f"{_code(each)}: {each.message}" for each in row.conditions]
    return "; ".join(dict.fromkeys(filter(None, [*told, row.status_message])))


def region_of(location: str) -> str:
    """Return the region that a location is, or is in: us-central1 of us-central1-a."""
    region, _, zone = location.rpartition("-")
    return region if len(zone) == 1 else location


def agrees(version: str, wanted: str) -> bool:
    """Tell whether a version of GKE is the wanted one, or later: Google upgrades by itself.

    Args:
        version: such as 1.35.8-gke.1225000.
        wanted: likewise, or its first parts: 1.35.
    """
    asked = version_key(wanted)
    return version_key(version)[: len(asked)] >= asked


def is_of(version: str, wanted: str) -> bool:
    """Tell whether a version of GKE is the wanted one, of which only the first parts may be told."""
    asked = version_key(wanted)
    return version_key(version)[: len(asked)] == asked


def version_key(version: str) -> tuple[int, ...]:
    """Return a version of GKE, such as 1.35.8-gke.1225000, as what can be compared."""
    numbers, _, build = version.partition("-gke.")
    return (*(int(part) for part in numbers.split(".")), *((int(build),) if build else ()))


def _code(condition: Any) -> str:  # noqa: ANN401 - the SDK's message
    """The code of a condition, which GKE fills in in one of two ways."""
    if condition.code:
        return str(condition.code.name)
    return "RESOURCE_EXHAUSTED" if condition.canonical_code == _RESOURCE_EXHAUSTED else "UNKNOWN"

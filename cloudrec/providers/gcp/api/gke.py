"""The shared part of GKE's clusters and node pools: their states, and changes that run one after another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from cloudrec.engine.graph import Condition, P_contra
from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.base.layout import shortened
from cloudrec.providers.base.operated import OperationFailedError
from cloudrec.providers.gcp import errors
from cloudrec.providers.gcp.api import ids, labels, operations, sdk
from cloudrec.providers.gcp.api.driver import GcpDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.providers.gcp.api.client import Gcp, Method

    Step = Callable[[], str]  # makes a changing call and returns its operation
    ClusterOrPool = sdk.container.Cluster | sdk.container.NodePool

R = TypeVar("R")  # a request
CLUSTER = "cluster"
PREFIX = "cloudrec-"  # of every cluster's name; the title follows
LABEL = "cloudrec.io/nodes"  # of a node: cpu or gpu
POOL_LABEL = "cloud.google.com/gke-nodepool"  # GKE sets it on every node
RUNNING = "RUNNING"
# The states of a cluster or pool that has a problem but still works.
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
_RESOURCE_EXHAUSTED = 8  # in google.rpc.Code
_UNDECIDED = frozenset({Condition.PENDING, Condition.FAILED, Condition.UNAVAILABLE})
# A zone's part of a location: docs.cloud.google.com/compute/docs/regions-zones/ai-zones has the second.
_ZONE, _AI_ZONE = re.compile(r"-([a-z]|ai\d+[a-z])$"), re.compile(r"-ai\d+([a-z])$")


class GkeDriver(GcpDriver[P_contra]):
    """Handles clusters or node pools.

    GKE makes one change of a cluster at a time, and each is an operation of minutes. `begin_all` takes a
    change of several operations: `condition` starts the next one when the one before it has ended.
    """

    poll_s = 3.0

    def __init__(self, gcp: Gcp) -> None:
        super().__init__(gcp)
        self._steps: dict[str, list[Step]] = {}  # the steps that are not started yet, by identity

    @property
    def gke(self) -> sdk.container.ClusterManagerClient:
        """The GKE client."""
        return self.gcp.container

    def clusters(self, cluster: str | None) -> list[sdk.container.Cluster]:
        """List the cluster of this name, or all of cloudrec's clusters in this region, with their pools."""
        return [row for row in listed(self.gcp) if is_ours(labels.decode(row.resource_labels), cluster)]

    def path(self, row: sdk.container.Cluster) -> str:
        """Return the path of a described cluster."""
        return f"projects/{self.gcp.project}/locations/{row.location}/clusters/{row.name}"

    def step(self, method: Method[R, sdk.container.Operation], request: R) -> Step:
        """Return a step that makes a changing call to GKE.

        Args:
            method: of the client.
            request: the message of the method.
        """
        return lambda: operations.of_container(self.gcp, self.gcp.call(method, request))

    def begin_all(self, identity: str, steps: Sequence[Step]) -> str:
        """Start the first of several changes, keep the others for later, and return the identity."""
        first, *others = steps
        self._steps[identity] = others
        return self.begin(identity, first)

    def begin_once(self, identity: str, step: Step) -> str:
        """Start a creation; if it fails it is not repeated, since GKE keeps the part that it has created."""
        operation = step()
        self.forget(identity)
        self.resume(identity, operation)
        return identity

    def forget(self, identity: str) -> None:
        """Stop following the operation on this resource, and drop its further steps."""
        with self._lock:
            self._changes.pop(identity, None)
        self._steps.pop(identity, None)

    def is_leaving(self, identity: str) -> bool:
        """Return whether this process follows a deletion of this resource."""
        return (change := self._changes.get(identity)) is not None and change.is_removal

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return the condition by the operation in progress; when it has ended, start the next step."""
        is_followed = identity in self._changes
        # Without a known operation, another process may have started one that did not reach the journal.
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
        """Find an operation that another process started; return whether there is one."""
        # Only the operation reports why a change failed: the resource itself may be gone, or show no reason.
        operation = operations.begun(self.gcp, ids.location(identity), identity)
        if operation:
            self.resume(identity, operation)
        return bool(operation)

    def state(self, row: ClusterOrPool) -> tuple[Condition, str]:
        """Return the condition that a cluster or pool itself reports, and the reason if it failed."""
        status = row.status.name
        condition = _STATES.get(status, Condition.PENDING)
        if condition is not Condition.FAILED:
            return condition, ""
        # GKE shows missing capacity as a failure like any other: only the messages distinguish it.
        reason = problem(row) or f"its status is {status}"
        return (Condition.UNAVAILABLE if shortage(row) else condition), reason


def cluster_name(title: str) -> str:
    """Return the name that a cluster has in GKE."""
    return shortened(f"{PREFIX}{title}", _LONGEST)


def listed(gcp: Gcp) -> list[sdk.container.Cluster]:
    """List the clusters of this region with cloudrec's prefix in their name, with their pools."""
    # All locations: a cluster is regional or in any zone of the region.
    request = sdk.container.ListClustersRequest(parent=f"projects/{gcp.project}/locations/-")
    rows = gcp.read(gcp.container.list_clusters, request).clusters
    return [row for row in rows if row.name.startswith(PREFIX) and region_of(row.location) == gcp.region]


def shortage(row: ClusterOrPool) -> str:
    """Return GKE's message about missing capacity or quota for a cluster or pool; empty if it has neither."""
    errors_found = [OperationFailedError(_code(each), each.message) for each in row.conditions]
    errors_found.append(OperationFailedError("", row.status_message))
    return problem(row) if any(errors.is_capacity(each) for each in errors_found) else ""


def problem(row: ClusterOrPool) -> str:
    """Return GKE's description of what is wrong with a cluster or pool; empty if nothing is."""
    messages = [f"{_code(each)}: {each.message}" for each in row.conditions]
    return "; ".join(dict.fromkeys(filter(None, [*messages, row.status_message])))


def region_of(location: str) -> str:
    """Return the region of a region or zone: us-central1 for us-central1-a and us-central1-ai1a."""
    return _ZONE.sub("", location)


def is_ai_zone(zone: str) -> bool:
    """Return whether a zone is an AI zone, such as us-central1-ai1a.

    It has accelerators, and not all services of its region: a control plane and CPU nodes belong in a
    standard zone.
    """
    return _AI_ZONE.search(zone) is not None


def standard_zone(zone: str) -> str:
    """Return the zone itself, or the standard zone that Google calls the parent of an AI zone."""
    return _AI_ZONE.sub(r"-\1", zone)


def agrees(version: str, wanted: str) -> bool:
    """Return whether a GKE version is the wanted one or a later one: Google upgrades clusters by itself.

    Args:
        version: such as 1.35.8-gke.1225000.
        wanted: in the same format, or only the first parts: 1.35.
    """
    asked = version_key(wanted)
    return version_key(version)[: len(asked)] >= asked


def is_of(version: str, wanted: str) -> bool:
    """Return whether a GKE version starts with the parts of the wanted one: 1.35.8-gke.1 with 1.35."""
    asked = version_key(wanted)
    return version_key(version)[: len(asked)] == asked


def version_key(version: str) -> tuple[int, ...]:
    """Return the numbers of a GKE version, for comparison: (1, 35, 8, 1225000) for 1.35.8-gke.1225000."""
    numbers, _, build = version.partition("-gke.")
    return (*(int(part) for part in numbers.split(".")), *((int(build),) if build else ()))


def _code(condition: sdk.container.StatusCondition) -> str:
    """Return the code of a condition, which GKE writes in one of two fields."""
    if condition.code:
        return condition.code.name
    return "RESOURCE_EXHAUSTED" if condition.canonical_code == _RESOURCE_EXHAUSTED else "UNKNOWN"

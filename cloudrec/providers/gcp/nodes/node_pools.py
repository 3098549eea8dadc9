"""The drivers of GKE's node pools. GKE accepts a request at once, and reports missing capacity later."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from cloudrec.engine.graph import TAG_KEY, Condition, Difference, ErrorVerdict, Observed, PoolMachines
from cloudrec.providers.base.driver import awaited, is_ours, name_of, needed, with_nodes
from cloudrec.providers.base.offers import ON_DEMAND, SPOT
from cloudrec.providers.base.operated import OperationFailedError
from cloudrec.providers.gcp import errors
from cloudrec.providers.gcp.api import gke, ids, labels, sdk
from cloudrec.providers.gcp.api.gke import CLUSTER
from cloudrec.providers.gcp.facts import NOTICE
from cloudrec.providers.gcp.identity.identity import ACCOUNT
from cloudrec.providers.gcp.nodes import cpu_nodes, pool_model
from cloudrec.providers.gcp.nodes.cpu_nodes import CPU
from cloudrec.providers.gcp.nodes.pool_model import CpuPoolProperties, GpuPoolProperties, PoolProperties
from cloudrec.providers.gcp.offers import FLEX, RESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.api.gke import Step

Pool_contra = TypeVar("Pool_contra", contravariant=True, bound=PoolProperties)
GPU = "gpu-nodes"
_OURS = "cloud.google.com/"  # the prefix of labels and taints that GKE adds by itself
_LACKING = frozenset({Condition.FAILED, Condition.UNAVAILABLE})


class _PoolDriver(gke.GkeDriver[Pool_contra]):
    """Handles pools of one of the two kinds."""

    changeable = frozenset({"state", "nodes", "labels", "taints", "version"})
    deadline_s = 3600.0

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the pools of this kind in the clusters."""
        return [
            self.observe(f"{self.path(row)}/nodePools/{pool.name}", pool)
            for row in self.clusters(cluster)
            for pool in row.node_pools
            if self._is_of_this_kind(pool, cluster)
        ]

    def _is_of_this_kind(self, pool: sdk.container.NodePool, cluster: str | None) -> bool:
        tags = labels.decode(pool.config.resource_labels)
        return is_ours(tags, cluster) and tags.get(TAG_KEY, "").partition("/")[0] == self.kind

    def fetch(self, resource: Resource[Pool_contra]) -> Observed | None:
        """Read the pool by its path; None if it does not exist."""
        path = resource.properties.path
        row = self.gcp.get(self.gke.get_node_pool, sdk.container.GetNodePoolRequest(name=path))
        return None if row is None else self.observe(path, row)

    def find(self, resource: Resource[Pool_contra]) -> Observed | None:
        """Find the pool. A failed one with running nodes counts as READY, so that it is never replaced."""
        seen = self.fetch(resource)
        if seen is not None and seen.identity in self._changes:
            # Not `self.condition`: for GPU nodes, it deletes a pool without capacity, and this only looks.
            condition, reason = gke.GkeDriver.condition(self, self.kind, seen.identity)
            if condition is Condition.GONE:
                return None
            seen = replace(seen, condition=condition, reason=reason)
        if seen is None or seen.condition not in _LACKING or not self.is_of_use(seen.identity):
            return seen
        self.forget(seen.identity)  # the failed change shows as a difference, and is made again
        return replace(seen, condition=Condition.READY)

    def is_of_use(self, identity: str) -> bool:
        """Return whether a pool with a problem has running nodes."""
        return self._has_machines(self.row(identity))

    def _has_machines(self, row: sdk.container.NodePool) -> bool:
        read = self.gcp.rest(sdk.compute.InstanceGroupsClient).get
        groups = [self.gcp.get(read, ids.arguments(group.instance_group)) for group in self.groups(row)]
        return any(group is not None and group.size for group in groups)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Read the pool and return its condition: it is not ready while its groups lack machines."""
        row = self.row(identity)
        condition, reason = self.state(row)
        machines = self.machines(row) if condition is Condition.READY else None
        if machines is None:
            return condition, reason
        lacking = OperationFailedError("", machines.reason)
        return awaited(machines, is_shortage=errors.is_capacity(lacking))

    def machines(self, row: sdk.container.NodePool) -> PoolMachines | None:
        """Return the machines that the groups of a pool have: GKE's own state does not follow them."""
        groups = self.groups(row)
        wanted = sum(each.target_size for each in groups)
        # A preempted machine that cannot be made again is being created or recreated all the time.
        waiting = sum(
            each.creating + each.creating_without_retries + each.recreating
            for each in (group.current_actions for group in groups)
        )
        reason = self._lacking(groups) if waiting else ""
        return PoolMachines(running=max(wanted - waiting, 0), wanted=wanted, reason=reason, is_retried=True)

    def _lacking(self, groups: Sequence[sdk.compute.InstanceGroupManager]) -> str:
        """Return why groups cannot make machines, as their newest errors say it."""
        read = self.gcp.rest(sdk.compute.InstanceGroupManagersClient).list_errors
        newest = [
            max(found, key=lambda each: each.timestamp).error
            for group in groups
            if (found := self.gcp.rows(read, ids.arguments(group.self_link)))
        ]
        return "; ".join(f"{error.code}: {error.message}" for error in newest)

    def row(self, identity: str) -> sdk.container.NodePool:
        """Read a pool by its identity; raises NotFound if it does not exist."""
        return self.gcp.read(self.gke.get_node_pool, sdk.container.GetNodePoolRequest(name=identity))

    def groups(self, row: sdk.container.NodePool) -> list[sdk.compute.InstanceGroupManager]:
        """Return the managed instance groups of a pool, one for each zone: only they have its size."""
        read = self.gcp.rest(sdk.compute.InstanceGroupManagersClient).get
        found = [self.gcp.get(read, ids.arguments(url)) for url in row.instance_group_urls]
        return [group for group in found if group is not None]

    def difference(self, resource: Resource[Pool_contra], observed: Observed) -> Difference | None:
        """Compare the properties; a later version than the requested one agrees."""
        wanted, there = resource.properties.version, observed.properties
        if wanted and gke.agrees(there["version"], wanted):
            observed = replace(observed, properties={**there, "version": wanted})
        return super().difference(resource, observed)

    def change(
        self, resource: Resource[Pool_contra], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Start the missing changes, one after another, since GKE makes one at a time."""
        del identities
        asked, identity = resource.properties, observed.identity
        there = self.properties(self.row(identity))
        of, update = sdk.container, self.gke.update_node_pool
        requests: list[sdk.container.UpdateNodePoolRequest] = []
        if asked.labels != there["labels"]:
            wanted = of.NodeLabels(labels=asked.labels)
            requests.append(of.UpdateNodePoolRequest(name=identity, labels=wanted))
        if asked.taints != there["taints"]:
            taints = of.NodeTaints(taints=pool_model.taints(asked.taints))
            requests.append(of.UpdateNodePoolRequest(name=identity, taints=taints))
        if asked.version and not gke.agrees(str(there["version"]), asked.version):
            requests.append(of.UpdateNodePoolRequest(name=identity, node_version=asked.version))
        steps: list[Step] = [self.step(update, request) for request in requests]
        # Setting the same size again makes GKE look again for the nodes that it did not find.
        lacks = observed.machines is not None and bool(observed.machines.lack)
        if asked.nodes != there["nodes"] or lacks or (not steps and there["state"] != gke.RUNNING):
            steps.append(self.resized(identity, asked))
        if steps:
            self.begin_all(identity, steps)

    def resized(self, identity: str, asked: Pool_contra) -> Step:
        """Return the step that sets the size of a pool."""
        request = sdk.container.SetNodePoolSizeRequest(name=identity, node_count=asked.nodes)
        return self.step(self.gke.set_node_pool_size, request)

    def remove(self, observed: Observed) -> None:
        """Start the deletion, with whatever runs there, unless it is in progress."""
        if not self.is_leaving(observed.identity):
            self.withdraw(observed.identity)

    def withdraw(self, identity: str) -> None:
        """Start the deletion, and drop the steps that are not started yet."""
        self._steps.pop(identity, None)
        request = sdk.container.DeleteNodePoolRequest(name=identity)
        self.begin(identity, self.step(self.gke.delete_node_pool, request), is_removal=True)

    def properties(self, row: sdk.container.NodePool) -> dict[str, object]:
        """Return the observed properties of a pool."""
        config = row.config
        return {
            "pool": row.name,
            "state": row.status.name if row.status.name in gke.IMPAIRED | {"ERROR"} else gke.RUNNING,
            "instance_type": config.machine_type,
            "nodes": self.size(row),
            "labels": {name: value for name, value in config.labels.items() if not name.startswith(_OURS)},
            "taints": [
                f"{taint.key}={taint.value}:{taint.effect.name}"
                for taint in config.taints
                if not taint.key.startswith(_OURS)
            ],
            "version": row.version,
        }

    def size(self, row: sdk.container.NodePool) -> int:
        """Return the target number of nodes in each zone."""
        # The pool itself has only the number of nodes that it was created with.
        sizes = [group.target_size for group in self.groups(row)]
        return sum(sizes) // max(len(row.instance_group_urls), 1)

    def hourly_usd(self, of: Mapping[str, Any], row: sdk.container.NodePool) -> float | None:
        """Return the price of the nodes in USD per hour; None if it is unknown."""
        count = of["nodes"] * len(row.locations)
        return self.gcp.prices.nodes(of["instance_type"], count, of.get("capacity", ON_DEMAND))

    def observe(self, identity: str, row: sdk.container.NodePool) -> Observed:
        """Return a described pool as the engine's `Observed`."""
        tags = labels.decode(row.config.resource_labels)
        condition, reason = self.state(row)
        of = self.properties(row)
        machines = self.machines(row) if condition is not Condition.PENDING else None
        running = of if machines is None or len(row.locations) > 1 else {**of, "nodes": machines.running}
        return Observed(
            kind=self.kind,
            name=name_of(tags, row.name),
            identity=identity,
            condition=condition,
            properties=of,
            tags=tags,
            hourly_usd=self.hourly_usd(running, row),
            reason=reason,
            location=gke.region_of(ids.location(identity)),
            machines=machines,
        )


class GcpCpuNodesDriver(_PoolDriver[CpuPoolProperties]):
    """Handles the pool of CPU nodes, which the cluster is created with."""

    kind = CPU

    def is_of_use(self, identity: str) -> bool:
        """Return whether the pool has running nodes, or GPU pools exist, which must not lose it."""
        request = sdk.container.ListNodePoolsRequest(parent=identity.rpartition("/nodePools/")[0])
        listed = self.gcp.read(self.gke.list_node_pools, request)
        return len(listed.node_pools) > 1 or super().is_of_use(identity)

    def fetch(self, resource: Resource[CpuPoolProperties]) -> Observed | None:
        """Read the pool by its path, else find it by its labels: its cluster may be in another zone."""
        return super().fetch(resource) or gke.GkeDriver.fetch(self, resource)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return the condition. UNAVAILABLE becomes FAILED: the pool has no other candidate."""
        condition, reason = super().condition(kind, identity)
        return (Condition.FAILED if condition is Condition.UNAVAILABLE else condition), reason

    def make(
        self, resource: Resource[CpuPoolProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Take over the pool that the cluster was created with; create it if it was deleted since."""
        del token
        path = resource.properties.path
        if self.fetch(resource) is not None:
            return path
        account = ids.name(needed(resource, identities, ACCOUNT))
        given = cpu_nodes.FirstPool(properties=resource.properties, labels=labels.encode(resource.tags))
        pool = cpu_nodes.body_of(given, account)
        parent = needed(resource, identities, CLUSTER)
        request = sdk.container.CreateNodePoolRequest(parent=parent, node_pool=pool)
        return self.begin_once(path, self.step(self.gke.create_node_pool, request))


class GcpGpuNodesDriver(_PoolDriver[GpuPoolProperties]):
    """Handles the pools of GPU nodes.

    A pool is created without nodes and then resized. If GKE finds no capacity, or not in time, the pool is
    deleted at once: GKE would keep looking, and could find the nodes when another pool already has them.
    """

    kind = GPU

    def __init__(self, gcp: Gcp) -> None:
        super().__init__(gcp)
        self._until: dict[str, float] = {}  # identity -> time at which a new pool is given up

    def make(
        self, resource: Resource[GpuPoolProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Start the creation of the pool, and keep the resize as its next step."""
        del token
        asked, path = resource.properties, resource.properties.path
        parent = needed(resource, identities, CLUSTER)
        cluster = self.gcp.read(self.gke.get_cluster, sdk.container.GetClusterRequest(name=parent))
        pool = pool_model.gpu(
            asked,
            labels=labels.encode(resource.tags),
            service_account=ids.name(needed(resource, identities, ACCOUNT)),
            networks=_networks(resource, identities),
            version=cluster.current_master_version,
        )
        request = sdk.container.CreateNodePoolRequest(parent=parent, node_pool=pool)
        self.begin_once(path, self.step(self.gke.create_node_pool, request))
        # Flex-start nodes are created when pods need them: there is nothing to resize or to wait for.
        if asked.capacity != FLEX:
            self._steps[path] = [self.resized(path, asked)]
            self._until[path] = self.gcp.clock.now() + self.gcp.clock.limit(asked.patience_s)
        return path

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return the condition; a new pool without capacity is deleted, and the next candidate is tried."""
        condition, reason = super().condition(kind, identity)
        until = self._until.get(identity)
        # Only a pool that this process has just created is deleted here: any other one may have nodes in use.
        if until is None:
            return condition, reason
        if condition is Condition.PENDING:
            condition, reason = self._patience(identity, until)
        if condition is Condition.UNAVAILABLE:
            self._give_up(identity)
        if condition is not Condition.PENDING:
            self._until.pop(identity, None)
        return condition, reason

    def as_before(
        self, resource: Resource[GpuPoolProperties], observed: Observed
    ) -> Resource[GpuPoolProperties] | None:
        """Return the pool with the size that it had; None if it had no nodes."""
        return with_nodes(resource, observed.properties.get("nodes"))

    def holds(self, observed: Observed) -> bool:
        """Return whether a pool that was given up has machines: they count against the next pool's quota."""
        request = sdk.container.GetNodePoolRequest(name=observed.identity)
        row = self.gcp.get(self.gke.get_node_pool, request)
        return row is not None and self._has_machines(row)

    def _patience(self, identity: str, until: float) -> tuple[Condition, str]:
        """Return PENDING, or UNAVAILABLE if GKE reports no capacity or the time is over."""
        is_late = self.gcp.clock.now() >= until
        row = self.gcp.get(self.gke.get_node_pool, sdk.container.GetNodePoolRequest(name=identity))
        if row is not None and (lacking := gke.shortage(row)):
            return Condition.UNAVAILABLE, lacking
        if is_late:
            return Condition.UNAVAILABLE, "Google has not found the nodes within the time limit"
        return Condition.PENDING, ""

    def _give_up(self, identity: str) -> None:
        """Start the deletion. GKE may refuse while it looks for the nodes: the engine deletes it later."""
        try:
            self.withdraw(identity)
        except self.refusals as error:
            if self.verdict(error) not in {ErrorVerdict.RETRY, ErrorVerdict.LOST} and not self.is_absent(
                error
            ):
                raise

    def resized(self, identity: str, asked: GpuPoolProperties) -> Step:
        """Return the step that sets the size of a pool; for flex-start, its maximum."""
        if asked.capacity != FLEX:
            return super().resized(identity, asked)
        scaling = pool_model.autoscaling(asked.nodes)
        request = sdk.container.SetNodePoolAutoscalingRequest(name=identity, autoscaling=scaling)
        return self.step(self.gke.set_node_pool_autoscaling, request)

    def machines(self, row: sdk.container.NodePool) -> PoolMachines | None:
        """Return the machines of a pool; None for flex-start, whose nodes exist only while pods need them."""
        return None if row.config.flex_start else super().machines(row)

    def size(self, row: sdk.container.NodePool) -> int:
        """Return the target number of nodes; for flex-start, the maximum."""
        return row.autoscaling.total_max_node_count if row.config.flex_start else super().size(row)

    def properties(self, row: sdk.container.NodePool) -> dict[str, object]:
        """Return the observed properties, with capacity type, zone and the notice of an interruption."""
        return {
            **super().properties(row),
            "capacity": _capacity(row),
            "zone": "".join(row.locations),
            "notice_s": _notice_s(row),
        }

    def hourly_usd(self, of: Mapping[str, Any], row: sdk.container.NodePool) -> float | None:
        """Return the price of the nodes in USD per hour; for flex-start, of those that exist."""
        there = {**of, "nodes": super().size(row)} if of["capacity"] == FLEX else of
        return super().hourly_usd(there, row)


def _networks(resource: Resource[GpuPoolProperties], identities: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the network and the subnetwork of each card besides the first, in the order of the cards."""
    return [(identities[net], identities[subnet]) for net, subnet in resource.properties.cards]


def _notice_s(row: sdk.container.NodePool) -> int:
    """Return the seconds from the notice of a preemption to the end of pods; 0 if nodes are not preempted."""
    if _capacity(row) in {ON_DEMAND, RESERVED}:
        return 0
    kubelet = row.config.kubelet_config
    total = kubelet.shutdown_grace_period_seconds
    return total - kubelet.shutdown_grace_period_critical_pods_seconds if total else NOTICE.seconds


def _capacity(row: sdk.container.NodePool) -> str:
    config = row.config
    if config.flex_start:
        return FLEX
    if config.spot:
        return SPOT
    return RESERVED if list(config.reservation_affinity.values) else ON_DEMAND

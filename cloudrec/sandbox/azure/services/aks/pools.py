"""Pools of nodes.

`infiniband` of /_control tells of every pool of a size that has InfiniBand whether it was made with it.
Durations: aks-pool-create, aks-pool-gpu-create, aks-pool-update, aks-pool-delete.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.sandbox.azure import operations
from cloudrec.sandbox.azure.errors import ArmError
from cloudrec.sandbox.azure.kinds import Kind
from cloudrec.sandbox.azure.registry import durations, setting
from cloudrec.sandbox.azure.registry import resource as register
from cloudrec.sandbox.azure.services import providers
from cloudrec.sandbox.azure.services.aks import drains, nodes, pool_checks, scale_sets, subnets, versions
from cloudrec.sandbox.azure.services.aks.pool_checks import SYSTEM, mode
from cloudrec.sandbox.azure.services.aks.refusals import in_progress, invalid
from cloudrec.sandbox.azure.services.compute import sizes
from cloudrec.sandbox.azure.store import Resource, store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec.sandbox.azure.call import Call
    from cloudrec.sandbox.azure.operations import Operation
    from cloudrec.sandbox.azure.paths import Path
    from cloudrec.sandbox.world import World

CLUSTER = "Microsoft.ContainerService/managedClusters"
TYPE = f"{CLUSTER}/agentPools"
APIS = ("2026-08-01", "2026-05-01", "2026-02-01", "2025-10-01", "2025-05-01")
_MODELS = "azure.mgmt.containerservice.models"
_DOING = {"create": "Creating", "update": "Updating", "delete": "Deleting"}

durations(
    {
        "aks-pool-create": 240,
        "aks-pool-gpu-create": 600,
        "aks-pool-update": 180,
        "aks-pool-delete": 240,
        "scale-set-delete": 60,
        "subnet-linger": 120,
    }
)


@register
class AgentPools(Kind):
    """Pools."""

    type = TYPE
    apis: ClassVar[Sequence[str]] = APIS
    model = f"{_MODELS}:AgentPool"
    is_located = False
    takes_tags = False
    name_rule = r".*"  # AKS says in its own words what is wrong with a name
    create_time, update_time, delete_time = "aks-pool-create", "aks-pool-update", "aks-pool-delete"
    malformed = "UnmarshalError"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the pool, and its place in the cluster."""
        cluster = self._cluster(call.world, call.path)
        if cluster.properties.get("provisioningState") == operations.FAILED and old is None:
            raise invalid(
                f"Cluster {cluster.name} is in state Failed: reconcile it by a PUT of the cluster first.",
                "OperationNotAllowed",
            )
        wish = body.get("properties") or {}
        before = old.properties if old else None
        kept = {name: before[name] for name in ("vmSize", "count", "mode")} if before else {}
        full = {**kept, **wish}
        owner = f"{nodes.group_id(cluster)}/{call.path.name}"
        if old is not None:
            owner = scale_sets.id_of(old, nodes.group_name(cluster))
            self._check_mode(call.world, old, full)
        pool_checks.check(call.world, call.path.name, full, region=cluster.location, owner=owner, old=before)
        version = wish.get("orchestratorVersion")
        if version:
            whole = versions.resolved(call.world, version, cluster.name, plan=plan_of(cluster))
            versions.check_pool(call.path.name, whole, cluster.properties["currentKubernetesVersion"])
        self._check_subnet(call, cluster, full, old)

    def _check_subnet(
        self, call: Call, cluster: Resource, wish: dict[str, Any], old: Resource | None
    ) -> None:
        used = {pool.properties.get("vnetSubnetID") for pool in nodes.pools(call.world, cluster)}
        id_ = wish.get("vnetSubnetID")
        if old is not None or id_ is None:
            if old is None and None not in used:
                raise invalid(
                    f"agent pool {call.path.name}: vnetSubnetID is missing; the other pools are in a virtual "
                    "network of their own.",
                    "AgentPoolVnetMismatch",
                )
            return
        outbound = cluster.properties["networkProfile"].get("outboundType", "")
        network = subnets.check(
            call.world, id_, region=cluster.location, outbound=outbound, nodes=int(wish.get("count", 1))
        )
        if not any(str(other or "").lower().startswith(f"{network.key}/") for other in used):
            raise invalid("All agent pools must be in the same virtual network.", "AgentPoolVnetMismatch")

    @staticmethod
    def _check_mode(world: World, old: Resource, wish: dict[str, Any]) -> None:
        if mode(old.properties) == SYSTEM != mode(wish) and is_last_system(world, old):
            raise no_system_pool(old.name)

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Fill in the defaults; an update keeps what it does not name."""
        cluster = self._cluster(call.world, call.path)
        properties = resource.properties
        if old is not None:
            resource.document["properties"] = properties = {**old["properties"], **properties}
        complete(call.world, resource, cluster)
        resource.facts.setdefault("infiniband", _has_infiniband(call.world, properties["vmSize"]))

    def time(self, resource: Resource, verb: str) -> str:
        """Nodes with GPUs take longer."""
        size = sizes.find(str(resource.properties.get("vmSize")))
        if verb == "create" and size is not None and size.gpus:
            return "aks-pool-gpu-create"
        return super().time(resource, verb)

    def begun(self, call: Call, resource: Resource, operation: Operation) -> None:
        """A deletion may be told to ignore the pods' disruption budgets; an upgrade never does."""
        wished = call.query.get("ignore-pod-disruption-budget", "").lower() == "true"
        operation.facts["ignore_budgets"] = wished
        properties = resource.properties
        operation.facts["drains"] = operation.verb == "delete" or (
            properties["currentOrchestratorVersion"] != properties["orchestratorVersion"]
        )

    def unmatched(self, header: str) -> ArmError:
        """AKS's own way of saying so."""
        return etag_mismatch()

    def finish(self, world: World, resource: Resource, operation: Operation) -> None:
        """Have the machines, or not."""
        cluster = self._cluster(world, resource.path)
        if operation.facts.get("drains"):
            drains.check(world, resource, operation)
        if operation.verb == "delete":
            return
        scale_sets.fit(world, resource, nodes.group_name(cluster))
        resource.properties["currentOrchestratorVersion"] = resource.properties["orchestratorVersion"]

    def fail(self, world: World, resource: Resource, operation: Operation) -> None:
        """A pool that could not grow shows as many nodes as it has; the scale set of a new one is there."""
        cluster = store(world).find(resource.path.parent)
        if cluster is None:
            return
        scale_set = store(world).find(scale_sets.id_of(resource, nodes.group_name(cluster)))
        held = scale_set.document["sku"]["capacity"] if scale_set else 0
        if operation.verb == "update":
            resource.properties["count"] = held

    def check_delete(self, world: World, resource: Resource) -> None:
        """The last system pool goes with its cluster alone."""
        if is_last_system(world, resource):
            raise no_system_pool(resource.name)

    def removed(self, world: World, resource: Resource) -> None:
        """Its scale set goes too."""
        cluster = store(world).find(resource.path.parent)
        if cluster is not None:
            scale_set = store(world).find(scale_sets.id_of(resource, nodes.group_name(cluster)))
            if scale_set is not None:
                operations.remove(world, scale_set)

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Its etag is among the properties."""
        return {**resource.document, "properties": {**resource.properties, "eTag": resource.etag}}

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Places and reservations want permissions of their own."""
        return linked(body.get("properties") or {})

    def locks(self, world: World, path: Path) -> Iterable[Resource]:
        """The cluster, and every other pool."""
        cluster = store(world).find(path.parent)
        return [cluster, *nodes.pools(world, cluster)] if cluster else []

    def busy(self, resource: Resource, operation: Operation) -> ArmError:
        """Which operation is under way."""
        return busy(resource, operation)

    @staticmethod
    def _cluster(world: World, path: Path) -> Resource:
        found = store(world).find(path.parent)
        if found is None:
            raise LookupError(f"{path.text} has no cluster")
        return found


def busy(resource: Resource, operation: Operation) -> ArmError:
    """What AKS says while an operation has the cluster or one of its pools."""
    doing = _DOING.get(operation.verb, "Updating")
    if resource.type == TYPE:
        return in_progress("agentpool operation", f"{resource.name} - {doing}")
    return in_progress("operation", doing)


def complete(world: World, pool: Resource, cluster: Resource) -> None:
    """Fill a pool's profile with what it does not say."""
    properties = pool.properties
    version = properties.get("orchestratorVersion")
    if version:
        properties["orchestratorVersion"] = versions.resolved(
            world, version, cluster.name, plan=plan_of(cluster)
        )
    current = cluster.properties["currentKubernetesVersion"]
    pool_checks.completed(properties, version=current)


def plan_of(cluster: Resource) -> str:
    """The cluster's support plan."""
    return str(cluster.properties.get("supportPlan") or "")


def _has_infiniband(world: World, size: str) -> bool | None:
    found = sizes.find(size)
    if found is None or not found.family.infiniband:
        return None
    return providers.has_feature(world, providers.INFINIBAND)


def is_last_system(world: World, pool: Resource) -> bool:
    """Whether no other pool of the cluster is a system pool."""
    cluster = store(world).find(pool.path.parent)
    others = [each for each in nodes.pools(world, cluster) if each.key != pool.key] if cluster else []
    return mode(pool.properties) == SYSTEM and not any(mode(each.properties) == SYSTEM for each in others)


def etag_mismatch() -> ArmError:
    """If-Match names another state than the present one."""
    return ArmError(
        "EtagMismatch",
        "Operation is not allowed: Etag mismatch: the resource was changed since it was read.",
        status=HTTPStatus.CONFLICT,
    )


def no_system_pool(name: str) -> ArmError:
    """A cluster without a system pool."""
    return ArmError(
        "OperationNotAllowed",
        f"There has to be at least one system agent pool. (agent pool {name}) Delete the cluster instead.",
    )


def linked(wish: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """The permissions that a pool's profile asks for on other resources."""
    for member, action in (
        ("vnetSubnetID", "Microsoft.Network/virtualNetworks/subnets/join/action"),
        ("proximityPlacementGroupID", "Microsoft.Compute/proximityPlacementGroups/write"),
        ("capacityReservationGroupID", "Microsoft.Compute/capacityReservationGroups/read"),
    ):
        if wish.get(member):
            yield action, wish[member]


def _tell_infiniband(world: World) -> dict[str, bool]:
    return {
        pool.id: pool.facts["infiniband"]
        for pool in store(world).of_type(TYPE)
        if pool.facts.get("infiniband") is not None
    }


def _refuse(_world: World, _value: object) -> None:
    raise ValueError("infiniband is only told: it follows from the feature and the size")


setting("infiniband", read=_tell_infiniband, write=_refuse)

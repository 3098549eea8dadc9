"""Node pools.

`infiniband` of /_control has, for every pool of a size with InfiniBand, whether it was made with InfiniBand.
Durations: aks-pool-create, aks-pool-gpu-create, aks-pool-update, aks-pool-delete.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure.arm import operations
from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import durations, setting
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import Resource, store
from cloudrec_sandbox.azure.services import providers
from cloudrec_sandbox.azure.services.aks import drains, nodes, pool_checks, scale_sets, subnets, versions
from cloudrec_sandbox.azure.services.aks.pool_checks import SYSTEM, mode
from cloudrec_sandbox.azure.services.aks.refusals import in_progress, invalid
from cloudrec_sandbox.azure.services.compute import placement, sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.azure.arm.paths import Path
    from cloudrec_sandbox.core.world import World

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
    name_rule = r".*"  # AKS itself refuses a name, with its own error
    create_time, update_time, delete_time = "aks-pool-create", "aks-pool-update", "aks-pool-delete"
    malformed = "UnmarshalError"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the pool, and whether it fits the cluster."""
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
        if old is None and (group := full.get("capacityReservationGroupID")):
            placement.check_use(call.world, group, nodes.principal_of(call.world, cluster))

    def _check_subnet(
        self, call: Call, cluster: Resource, wish: dict[str, Any], old: Resource | None
    ) -> None:
        used = {pool.properties.get("vnetSubnetID") for pool in nodes.pools(call.world, cluster)}
        id_ = wish.get("vnetSubnetID")
        if old is not None or id_ is None:
            if old is None and None not in used:
                raise invalid(
                    f"agent pool {call.path.name}: vnetSubnetID is missing; the other pools are in another "
                    "virtual network.",
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
        group = properties.get("capacityReservationGroupID")
        if group and not placement.has_reservations(call.world, group):
            del properties["capacityReservationGroupID"]
        complete(call.world, resource, cluster)
        # Kept from the creation: a feature registered later gives an existing pool no InfiniBand.
        resource.facts.setdefault("infiniband", _has_infiniband(call.world, properties["vmSize"]))

    def time(self, resource: Resource, verb: str) -> str:
        """Return the duration; nodes with GPUs take longer."""
        size = sizes.find(str(resource.properties.get("vmSize")))
        if verb == "create" and size is not None and size.gpus:
            return "aks-pool-gpu-create"
        return super().time(resource, verb)

    def begun(self, call: Call, resource: Resource, operation: Operation) -> None:
        """Note whether a deletion ignores the pods' disruption budgets; an upgrade never does."""
        wished = call.query.get("ignore-pod-disruption-budget", "").lower() == "true"
        operation.facts["ignore_budgets"] = wished
        properties = resource.properties
        operation.facts["drains"] = operation.verb == "delete" or (
            properties["currentOrchestratorVersion"] != properties["orchestratorVersion"]
        )

    def unmatched(self, header: str) -> ArmError:
        """Return AKS's own error for it."""
        return etag_mismatch()

    def finish(self, world: World, resource: Resource, operation: Operation) -> None:
        """Get the machines; ArmError if there are too few."""
        cluster = self._cluster(world, resource.path)
        if operation.facts.get("drains"):
            drains.check(world, resource, operation)
        if operation.verb == "delete":
            return
        scale_sets.fit(world, resource, nodes.group_name(cluster))
        resource.properties["currentOrchestratorVersion"] = resource.properties["orchestratorVersion"]

    def fail(self, world: World, resource: Resource, operation: Operation) -> None:
        """Show as many nodes as the pool has, if it could not grow; a new pool's scale set stays."""
        cluster = store(world).find(resource.path.parent)
        if cluster is None:
            return
        scale_set = store(world).find(scale_sets.id_of(resource, nodes.group_name(cluster)))
        held = scale_set.document["sku"]["capacity"] if scale_set else 0
        if operation.verb == "update":
            resource.properties["count"] = held

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse to delete the last system pool: it is deleted with its cluster only."""
        if is_last_system(world, resource):
            raise no_system_pool(resource.name)

    def removed(self, world: World, resource: Resource) -> None:
        """Remove its scale set too."""
        cluster = store(world).find(resource.path.parent)
        if cluster is not None:
            scale_set = store(world).find(scale_sets.id_of(resource, nodes.group_name(cluster)))
            if scale_set is not None:
                operations.remove(world, scale_set)

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document; its etag is among the properties."""
        return {**resource.document, "properties": {**resource.properties, "eTag": resource.etag}}

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the permissions for placement groups and reservations, which are separate ones."""
        return linked(body.get("properties") or {})

    def locks(self, world: World, path: Path) -> Iterable[Resource]:
        """Return the cluster, and every other pool: AKS runs one operation of a cluster at a time."""
        cluster = store(world).find(path.parent)
        return [cluster, *nodes.pools(world, cluster)] if cluster else []

    def busy(self, resource: Resource, operation: Operation) -> ArmError:
        """Return the error that names the operation in progress."""
        return busy(resource, operation)

    @staticmethod
    def _cluster(world: World, path: Path) -> Resource:
        found = store(world).find(path.parent)
        if found is None:
            raise LookupError(f"{path.text} has no cluster")
        return found


def busy(resource: Resource, operation: Operation) -> ArmError:
    """Return AKS's error while an operation holds the cluster or one of its pools."""
    doing = _DOING.get(operation.verb, "Updating")
    if resource.type == TYPE:
        return in_progress("agentpool operation", f"{resource.name} - {doing}")
    return in_progress("operation", doing)


def complete(world: World, pool: Resource, cluster: Resource) -> None:
    """Fill in what a pool's profile leaves out."""
    properties = pool.properties
    version = properties.get("orchestratorVersion")
    if version:
        properties["orchestratorVersion"] = versions.resolved(
            world, version, cluster.name, plan=plan_of(cluster)
        )
    current = cluster.properties["currentKubernetesVersion"]
    pool_checks.completed(properties, version=current)


def plan_of(cluster: Resource) -> str:
    """Return the cluster's support plan."""
    return str(cluster.properties.get("supportPlan") or "")


def _has_infiniband(world: World, size: str) -> bool | None:
    found = sizes.find(size)
    if found is None or not found.family.infiniband:
        return None
    return providers.has_feature(world, providers.INFINIBAND)


def is_last_system(world: World, pool: Resource) -> bool:
    """Return whether no other pool of the cluster is a system pool."""
    cluster = store(world).find(pool.path.parent)
    others = [each for each in nodes.pools(world, cluster) if each.key != pool.key] if cluster else []
    return mode(pool.properties) == SYSTEM and not any(mode(each.properties) == SYSTEM for each in others)


def etag_mismatch() -> ArmError:
    """Return the error for an If-Match that is not the present state."""
    return ArmError(
        "EtagMismatch",
        "Operation is not allowed: Etag mismatch: the resource was changed since it was read.",
        status=HTTPStatus.CONFLICT,
    )


def no_system_pool(name: str) -> ArmError:
    """Return the error for a cluster without a system pool."""
    return ArmError(
        "OperationNotAllowed",
        f"There has to be at least one system agent pool. (agent pool {name}) Delete the cluster instead.",
    )


def linked(wish: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the permissions that a pool's profile needs on other resources."""
    for member, action in (
        ("vnetSubnetID", "Microsoft.Network/virtualNetworks/subnets/join/action"),
        ("proximityPlacementGroupID", "Microsoft.Compute/proximityPlacementGroups/write"),
        ("capacityReservationGroupID", "Microsoft.Compute/capacityReservationGroups/read"),
    ):
        if wish.get(member):
            yield action, wish[member]


def _read_infiniband(world: World) -> dict[str, bool]:
    return {
        pool.id: pool.facts["infiniband"]
        for pool in store(world).of_type(TYPE)
        if pool.facts.get("infiniband") is not None
    }


def _refuse(_world: World, _value: object) -> None:
    raise ValueError("infiniband is read-only: it follows from the feature and the size")


setting("infiniband", read=_read_infiniband, write=_refuse)

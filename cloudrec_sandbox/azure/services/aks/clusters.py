"""Clusters.

Durations: aks-create, aks-update, aks-delete, aks-node-group (until a new cluster's own resource group
exists), aks-authorize (until a cluster finds that it may not join the subnet).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from cloudrec_sandbox.azure.arm import operations
from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import durations, kinds
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import Resource, store
from cloudrec_sandbox.azure.identity import entra
from cloudrec_sandbox.azure.services import providers
from cloudrec_sandbox.azure.services.aks import cluster_checks, nodes, pools, scale_sets, subnets, versions
from cloudrec_sandbox.azure.services.aks.refusals import invalid
from cloudrec_sandbox.azure.services.authorization import principals
from cloudrec_sandbox.core import linked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.azure.arm.paths import Path
    from cloudrec_sandbox.core.linked import Server
    from cloudrec_sandbox.core.world import World

_MODELS = "azure.mgmt.containerservice.models"
_NEEDED = ("Microsoft.Compute", "Microsoft.Network")
_FOR_METRICS = ("Microsoft.Insights", "Microsoft.AlertsManagement")
_ASSIGN = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
_KEPT = ("fqdn", "privateFQDN", "azurePortalFQDN", "resourceUID", "currentKubernetesVersion")
PREEMPTED = "AKSOperationPreemptedByDelete"

durations(
    {"aks-create": 300, "aks-update": 180, "aks-delete": 300, "aks-node-group": 15, "aks-authorize": 45}
)


@register
class ManagedClusters(Kind):
    """Clusters."""

    type = pools.CLUSTER
    apis: ClassVar[Sequence[str]] = pools.APIS
    model = f"{_MODELS}:ManagedCluster"
    patch_model = f"{_MODELS}:TagsObject"
    name_rule = r"[A-Za-z0-9](?:[\w-]{0,61}[A-Za-z0-9])?"
    create_time, update_time, delete_time = "aks-create", "aks-update", "aks-delete"
    malformed = "UnmarshalError"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the whole cluster."""
        world, wish = call.world, body.get("properties") or {}
        for namespace in _NEEDED:
            providers.check_namespace(world, namespace, call.path.subscription)
        # TagsObject, the model of a PATCH, has only tags: there is nothing else to check.
        if call.target.method == "PATCH":
            return
        cluster_checks.check(call, body, old)
        # azure-docs, prometheus-metrics-enable.md ("Prerequisites"): the resource providers for the agent.
        if ((wish.get("azureMonitorProfile") or {}).get("metrics") or {}).get("enabled"):
            for namespace in _FOR_METRICS:
                providers.check_namespace(world, namespace, call.path.subscription)
        if wish.get("kubernetesVersion"):
            wanted = versions.resolved(
                world, wish["kubernetesVersion"], call.path.name, plan=str(wish.get("supportPlan") or "")
            )
            if old is not None:
                versions.check_upgrade(old.properties["currentKubernetesVersion"], wanted)
                # No pool may be newer than its cluster, or too far behind it.
                for pool in nodes.pools(world, old):
                    versions.check_pool(pool.name, pool.properties["currentOrchestratorVersion"], wanted)
        region = str(body["location"]).lower().replace(" ", "")
        if old is None:
            cluster_checks.check_pools(call, body, {}, region)
        else:
            _check_profiles(world, old, wish.get("agentPoolProfiles"))

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Fill in the defaults, and make the pools of a new cluster."""
        world, properties = call.world, resource.properties
        profiles = properties.pop("agentPoolProfiles", None) or []
        if old is None:
            _complete(call, resource)
            resource.facts["authority"] = call.base  # Entra ID answers at the address of ARM here
            store(world).add(resource)
            for profile in profiles:
                _add_pool(world, resource, profile)
            world.after(world.duration("aks-node-group"), nodes.make_group, resource.id)
            return
        before = old["properties"]
        # A cluster's PUT that leaves a property out does not remove it.
        resource.document["properties"] = {**before, **properties}
        resource.document["identity"] = old.get("identity")
        resource.document.setdefault("sku", old.get("sku"))
        for name in ("networkProfile", "oidcIssuerProfile", "identityProfile"):
            resource.properties[name] = {**(before.get(name) or {}), **(properties.get(name) or {})}
        if wanted := properties.get("kubernetesVersion"):
            version = versions.resolved(world, wanted, resource.name, plan=pools.plan_of(resource))
            resource.properties["currentKubernetesVersion"] = version

    def begun(self, call: Call, resource: Resource, operation: Operation) -> None:
        """Check soon whether the cluster may join the subnets."""
        if operation.verb != "delete":
            call.world.after(call.world.duration("aks-authorize"), authorize, resource.id, operation.id)

    def unmatched(self, header: str) -> ArmError:
        """Return AKS's own error for it."""
        return pools.etag_mismatch()

    def finish(self, world: World, resource: Resource, operation: Operation) -> None:
        """Make everything that a cluster has, or delete it."""
        if operation.verb == "delete":
            nodes.clear(world, resource)
            return
        # The grants may have been removed since the check at the beginning.
        for refusal in _unauthorized(world, resource):
            raise refusal
        nodes.furnish(world, resource)
        for pool in nodes.pools(world, resource):
            try:
                scale_sets.fit(world, pool, nodes.group_name(resource))
            except ArmError:
                kinds[pools.TYPE.lower()].mark(pool, operations.FAILED)
                raise
            kinds[pools.TYPE.lower()].mark(pool, operations.SUCCEEDED)
        _name(resource, linked.of(world, resource.id))

    def fail(self, world: World, resource: Resource, operation: Operation) -> None:
        """Keep what was made; mark the pools that were not reached as failed."""
        for pool in nodes.pools(world, resource):
            if pool.properties.get("provisioningState") == "Creating":
                kinds[pools.TYPE.lower()].mark(pool, operations.FAILED)

    def interrupt(self, world: World, resource: Resource, operation: Operation) -> bool:
        """End whatever is in progress, its pools' operations too: a deletion may."""
        preempted(world, resource, operation)
        return True

    def before_delete(self, world: World, resource: Resource) -> None:
        """Delete the pools with the cluster."""
        for pool in nodes.pools(world, resource):
            running = operations.find(world, pool.busy) if pool.busy else None
            if running is not None and not running.is_over:
                preempted(world, pool, running)
            kinds[pools.TYPE.lower()].mark(pool, "Deleting")

    def removed(self, world: World, resource: Resource) -> None:
        """Remove the cluster's system-assigned identity; its role assignments stay."""
        if principal := (resource.document.get("identity") or {}).get("principalId"):
            principals.remove(world, principal)

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document with the pools."""
        rows = [
            {"name": pool.name, **pool.properties, "eTag": pool.etag} for pool in nodes.pools(world, resource)
        ]
        properties = {**resource.properties, "agentPoolProfiles": rows}
        return {**resource.document, "eTag": resource.etag, "properties": properties}

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the permissions to assign an identity and to join a subnet, which are separate ones."""
        wish = body.get("properties") or {}
        assigned = list((body.get("identity") or {}).get("userAssignedIdentities") or {})
        kubelet = ((wish.get("identityProfile") or {}).get("kubeletidentity") or {}).get("resourceId")
        for id_ in [*assigned, *([kubelet] if kubelet else [])]:
            yield _ASSIGN, id_
        for profile in wish.get("agentPoolProfiles") or []:
            yield from pools.linked(profile)

    def locks(self, world: World, path: Path) -> Iterable[Resource]:
        """Return the cluster and every pool."""
        found = store(world).find(path.text)
        return [found, *nodes.pools(world, found)] if found else []

    def busy(self, resource: Resource, operation: Operation) -> ArmError:
        """Return the error that names the operation in progress."""
        return pools.busy(resource, operation)


def preempted(world: World, resource: Resource, operation: Operation) -> None:
    """End an operation because the cluster is being deleted."""
    error = ArmError(
        PREEMPTED,
        f"The operation {operation.id} on {resource.name} was preempted by the deletion of the cluster.",
    )
    operations.conclude(world, operation, error)


def authorize(world: World, id_: str, operation_id: str) -> None:
    """Check, some time after the operation began, whether the cluster may join the nodes' subnets."""
    cluster, operation = store(world).find(id_), operations.find(world, operation_id)
    if cluster is None or operation is None or operation.is_over:
        return
    for refusal in _unauthorized(world, cluster):
        operations.break_off(world, cluster, operation, refusal)
        return


def _unauthorized(world: World, cluster: Resource) -> Iterable[ArmError]:
    # AKS needs the rights on the subnet that the user brings (aks-docs), and grants take a while to apply.
    wanted = {pool.properties.get("vnetSubnetID") for pool in nodes.pools(world, cluster)} - {None}
    principal = nodes.principal_of(world, cluster)
    return subnets.unauthorized(world, principal, principal, {str(id_) for id_ in wanted})


def _complete(call: Call, cluster: Resource) -> None:
    """Fill in what a new cluster's PUT leaves out."""
    world, properties = call.world, cluster.properties
    wanted = properties.get("kubernetesVersion") or versions.default(world)
    version = versions.resolved(world, wanted, cluster.name, plan=pools.plan_of(cluster))
    properties["kubernetesVersion"] = wanted
    properties["currentKubernetesVersion"] = version
    properties["nodeResourceGroup"] = nodes.group_name(cluster)
    properties["powerState"] = {"code": "Running"}
    properties["maxAgentPools"] = 100
    properties["resourceUID"] = str(uuid4()).replace("-", "")[:24]
    properties.setdefault("enableRBAC", True)
    properties.setdefault("supportPlan", "KubernetesOfficial")
    properties.setdefault("disableLocalAccounts", False)
    network = properties.setdefault("networkProfile", {})
    for name, value in {
        "networkPlugin": "azure",
        "networkDataplane": "azure",
        "podCidr": "10.244.0.0/16",
        "serviceCidr": "10.0.0.0/16",
        "dnsServiceIP": "10.0.0.10",
        "outboundType": "loadBalancer",
        "loadBalancerSku": "standard",
        "ipFamilies": ["IPv4"],
    }.items():
        network.setdefault(name, value)
    if network["networkPlugin"] == "azure":
        network.setdefault("networkPluginMode", "overlay")
    network["loadBalancerSku"] = "standard"
    cluster.document["sku"] = {"name": "Base", "tier": "Free", **(cluster.document.get("sku") or {})}
    if (directory := properties.get("aadProfile")) is not None:
        directory["tenantID"] = directory.get("tenantID") or entra.TENANT
    _complete_identity(world, cluster)


def _complete_identity(world: World, cluster: Resource) -> None:
    identity = cluster.document.get("identity") or {}
    if identity.get("type") == "SystemAssigned":
        identity |= {"principalId": str(uuid4()), "tenantId": entra.TENANT}
        principals.add(world, identity["principalId"])
    for id_ in identity.get("userAssignedIdentities") or {}:
        found = store(world).find(id_)
        known = {name: found.properties[name] for name in ("clientId", "principalId")} if found else {}
        identity["userAssignedIdentities"][id_] = known


def _add_pool(world: World, cluster: Resource, profile: dict[str, Any]) -> None:
    properties = {key: value for key, value in profile.items() if key != "name"}
    id_ = f"{cluster.id}/agentPools/{profile['name']}"
    document = {"id": id_, "name": profile["name"], "type": pools.TYPE, "properties": properties}
    pool = Resource(id=id_, type=pools.TYPE, document=document, made_at=world.now(), changed_at=world.now())
    pools.complete(world, pool, cluster)
    kinds[pools.TYPE.lower()].mark(pool, "Creating")
    store(world).add(pool)


def _name(cluster: Resource, link: Server | None) -> None:
    """Give a cluster its host names, when its creation ends."""
    properties, region = cluster.properties, cluster.location
    if (properties.get("oidcIssuerProfile") or {}).get("enabled"):
        root = f"https://{region}.oic.prod-aks.azure.com/{entra.TENANT}"
        properties["oidcIssuerProfile"]["issuerURL"] = f"{root}/{nodes.guid(cluster, 'oidc')}/"
    prefix = properties.get("dnsPrefix") or properties.get("fqdnSubdomain")
    host = f"{prefix}-{nodes.guid(cluster, 'name')[:8]}"
    private = properties.get("apiServerAccessProfile") or {}
    properties["azurePortalFQDN"] = f"{host}.portal.hcp.{region}.azmk8s.io"
    if private.get("enablePrivateCluster"):
        properties["privateFQDN"] = f"{host}.{nodes.private_zone(cluster)}"
    if not private.get("enablePrivateCluster") or private.get("enablePrivateClusterPublicFQDN", True):
        properties["fqdn"] = f"{host}.hcp.{region}.azmk8s.io"
    if link is not None:  # all of its names are the linked server's
        served = link.host.partition(":")[0]
        properties |= {key: served for key in ("fqdn", "privateFQDN", "azurePortalFQDN") if key in properties}


def _check_profiles(world: World, cluster: Resource, profiles: Sequence[dict[str, Any]] | None) -> None:
    # In a new cluster the profiles make the pools; later each pool is a resource with its own state.
    """Refuse changes of pools in a cluster's PUT: pools have their own PUT."""
    if profiles is None:
        return
    there = {pool.name: pool.properties for pool in nodes.pools(world, cluster)}
    names = {str(profile.get("name")) for profile in profiles}
    if names != set(there):
        raise invalid(
            f"agentPoolProfiles has {sorted(names)} and the cluster {sorted(there)}: pools are added and "
            f"removed by separate calls."
        )
    for profile in profiles:
        before = there[str(profile["name"])]
        for member in ("count", "vmSize", "orchestratorVersion"):
            wanted, has = profile.get(member), before.get(member)
            if member == "orchestratorVersion" and wanted and str(has).startswith(f"{wanted}."):
                continue  # a minor version matches any of its patches
            if wanted is not None and wanted != has:
                raise ArmError(
                    "PropertyChangeNotAllowed",
                    f"Changing property 'agentPoolProfile.{member}' is not allowed here: change the agent "
                    f"pool.",
                    status=HTTPStatus.BAD_REQUEST,
                )

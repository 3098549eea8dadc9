"""Clusters.

Durations: aks-create, aks-update, aks-delete, aks-node-group (until a new cluster's own resource group is
there), aks-authorize (until a cluster finds that it may not join the subnet).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from cloudrec.sandbox import linked
from cloudrec.sandbox.azure import entra, operations
from cloudrec.sandbox.azure.errors import ArmError
from cloudrec.sandbox.azure.kinds import Kind
from cloudrec.sandbox.azure.registry import durations, kinds
from cloudrec.sandbox.azure.registry import resource as register
from cloudrec.sandbox.azure.services import providers
from cloudrec.sandbox.azure.services.aks import cluster_checks, nodes, pools, scale_sets, subnets, versions
from cloudrec.sandbox.azure.services.aks.refusals import invalid
from cloudrec.sandbox.azure.services.authorization import principals
from cloudrec.sandbox.azure.store import Resource, store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec.sandbox.azure.call import Call
    from cloudrec.sandbox.azure.operations import Operation
    from cloudrec.sandbox.azure.paths import Path
    from cloudrec.sandbox.linked import Linked
    from cloudrec.sandbox.world import World

_MODELS = "azure.mgmt.containerservice.models"
_NEEDED = ("Microsoft.Compute", "Microsoft.Network")
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
        """Check the whole of it."""
        world, wish = call.world, body.get("properties") or {}
        for namespace in _NEEDED:
            providers.check_namespace(world, namespace, call.path.subscription)
        if call.target.method == "PATCH":
            return
        cluster_checks.check(call, body, old)
        if wish.get("kubernetesVersion"):
            wanted = versions.resolved(
                world, wish["kubernetesVersion"], call.path.name, plan=str(wish.get("supportPlan") or "")
            )
            if old is not None:
                versions.check_upgrade(old.properties["currentKubernetesVersion"], wanted)
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
            store(world).add(resource)
            for profile in profiles:
                _add_pool(world, resource, profile)
            world.after(world.duration("aks-node-group"), nodes.make_group, resource.id)
            return
        before = old["properties"]
        resource.document["properties"] = {**before, **properties}
        resource.document["identity"] = old.get("identity")
        resource.document.setdefault("sku", old.get("sku"))
        for name in ("networkProfile", "oidcIssuerProfile", "identityProfile"):
            resource.properties[name] = {**(before.get(name) or {}), **(properties.get(name) or {})}
        if wanted := properties.get("kubernetesVersion"):
            version = versions.resolved(world, wanted, resource.name, plan=pools.plan_of(resource))
            resource.properties["currentKubernetesVersion"] = version

    def begun(self, call: Call, resource: Resource, operation: Operation) -> None:
        """Whether it may join the subnets, it finds out soon."""
        if operation.verb != "delete":
            call.world.after(call.world.duration("aks-authorize"), authorize, resource.id, operation.id)

    def unmatched(self, header: str) -> ArmError:
        """AKS's own way of saying so."""
        return pools.etag_mismatch()

    def finish(self, world: World, resource: Resource, operation: Operation) -> None:
        """Have all that a cluster has, or be rid of it."""
        if operation.verb == "delete":
            nodes.clear(world, resource)
            return
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
        _name(resource, linked.of(world))

    def fail(self, world: World, resource: Resource, operation: Operation) -> None:
        """Whatever was made remains; pools that were not reached have failed with it."""
        for pool in nodes.pools(world, resource):
            if pool.properties.get("provisioningState") == "Creating":
                kinds[pools.TYPE.lower()].mark(pool, operations.FAILED)

    def interrupt(self, world: World, resource: Resource, operation: Operation) -> bool:
        """A deletion ends whatever is under way, its pools' operations too."""
        preempted(world, resource, operation)
        return True

    def before_delete(self, world: World, resource: Resource) -> None:
        """The pools go with the cluster."""
        for pool in nodes.pools(world, resource):
            running = operations.find(world, pool.busy) if pool.busy else None
            if running is not None and not running.is_over:
                preempted(world, pool, running)
            kinds[pools.TYPE.lower()].mark(pool, "Deleting")

    def removed(self, world: World, resource: Resource) -> None:
        """The identity that it was born with goes; the roles that it was given stay."""
        if principal := (resource.document.get("identity") or {}).get("principalId"):
            principals.remove(world, principal)

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """With its pools."""
        rows = [
            {"name": pool.name, **pool.properties, "eTag": pool.etag} for pool in nodes.pools(world, resource)
        ]
        properties = {**resource.properties, "agentPoolProfiles": rows}
        return {**resource.document, "eTag": resource.etag, "properties": properties}

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """To hand over an identity, or a subnet, is a permission of its own."""
        wish = body.get("properties") or {}
        assigned = list((body.get("identity") or {}).get("userAssignedIdentities") or {})
        kubelet = ((wish.get("identityProfile") or {}).get("kubeletidentity") or {}).get("resourceId")
        for id_ in [*assigned, *([kubelet] if kubelet else [])]:
            yield _ASSIGN, id_
        for profile in wish.get("agentPoolProfiles") or []:
            yield from pools.linked(profile)

    def locks(self, world: World, path: Path) -> Iterable[Resource]:
        """The cluster and every pool."""
        found = store(world).find(path.text)
        return [found, *nodes.pools(world, found)] if found else []

    def busy(self, resource: Resource, operation: Operation) -> ArmError:
        """Which operation is under way."""
        return pools.busy(resource, operation)


def preempted(world: World, resource: Resource, operation: Operation) -> None:
    """End an operation because the cluster goes."""
    error = ArmError(
        PREEMPTED,
        f"The operation {operation.id} on {resource.name} was preempted by the deletion of the cluster.",
    )
    operations.conclude(world, operation, error)


def authorize(world: World, id_: str, operation_id: str) -> None:
    """Find out, some time after the begin, whether the cluster may join the nodes' subnets."""
    cluster, operation = store(world).find(id_), operations.find(world, operation_id)
    if cluster is None or operation is None or operation.is_over:
        return
    for refusal in _unauthorized(world, cluster):
        operations.break_off(world, cluster, operation, refusal)
        return


def _unauthorized(world: World, cluster: Resource) -> Iterable[ArmError]:
    wanted = {pool.properties.get("vnetSubnetID") for pool in nodes.pools(world, cluster)} - {None}
    principal = nodes.principal_of(world, cluster)
    return subnets.unauthorized(world, principal, principal, {str(id_) for id_ in wanted})


def _complete(call: Call, cluster: Resource) -> None:
    """A new cluster with what its PUT does not say."""
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
        told = {name: found.properties[name] for name in ("clientId", "principalId")} if found else {}
        identity["userAssignedIdentities"][id_] = told


def _add_pool(world: World, cluster: Resource, profile: dict[str, Any]) -> None:
    properties = {key: value for key, value in profile.items() if key != "name"}
    id_ = f"{cluster.id}/agentPools/{profile['name']}"
    document = {"id": id_, "name": profile["name"], "type": pools.TYPE, "properties": properties}
    pool = Resource(id=id_, type=pools.TYPE, document=document, made_at=world.now(), changed_at=world.now())
    pools.complete(world, pool, cluster)
    kinds[pools.TYPE.lower()].mark(pool, "Creating")
    store(world).add(pool)


def _name(cluster: Resource, link: Linked | None) -> None:
    """Give a cluster its names, at the first end of its making."""
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
    if link is not None:  # what is elsewhere tells so by all of its names
        served = link.host.partition(":")[0]
        properties |= {key: served for key in ("fqdn", "privateFQDN", "azurePortalFQDN") if key in properties}


def _check_profiles(world: World, cluster: Resource, profiles: Sequence[dict[str, Any]] | None) -> None:
    """A cluster's PUT leaves its pools as they are: their own PUTs change them."""
    if profiles is None:
        return
    there = {pool.name: pool.properties for pool in nodes.pools(world, cluster)}
    names = {str(profile.get("name")) for profile in profiles}
    if names != set(there):
        raise invalid(
            f"agentPoolProfiles has {sorted(names)} and the cluster {sorted(there)}: pools are added and "
            f"removed by "
            "calls of their own."
        )
    for profile in profiles:
        before = there[str(profile["name"])]
        for member in ("count", "vmSize", "orchestratorVersion"):
            wanted, has = profile.get(member), before.get(member)
            if member == "orchestratorVersion" and wanted and str(has).startswith(f"{wanted}."):
                continue  # a minor version is whichever of its patches there is
            if wanted is not None and wanted != has:
                raise ArmError(
                    "PropertyChangeNotAllowed",
                    f"Changing property 'agentPoolProfile.{member}' is not allowed here: change the agent "
                    f"pool.",
                    status=HTTPStatus.BAD_REQUEST,
                )

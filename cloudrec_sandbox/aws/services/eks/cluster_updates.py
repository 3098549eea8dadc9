"""UpdateClusterConfig, UpdateClusterVersion, AssociateEncryptionConfig: one kind of change, one at a time."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.services.eks import checks, updates, versions
from cloudrec_sandbox.aws.services.eks.clusters import logging_of, make_log_group
from cloudrec_sandbox.aws.services.eks.state import (
    Cluster,
    Where,
    cluster_of,
    find,
    in_use,
    invalid_parameter,
    require_active,
    where,
)

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

_ENDPOINT = {
    "endpointPublicAccess": "EndpointPublicAccess",
    "endpointPrivateAccess": "EndpointPrivateAccess",
    "publicAccessCidrs": "PublicAccessCidrs",
}
_NETWORK = {"subnetIds": "Subnets", "securityGroupIds": "SecurityGroups"}
_MODES = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")


@operation("eks", "UpdateClusterConfig")
def update_cluster_config(call: Call) -> dict[str, Any]:
    """Change one kind of setting: EKS refuses two in one call."""
    cluster = _ready(call, "name")
    kind, params, change = _change(call, cluster)
    return {"update": _start(call, cluster, kind, params, change)}


@operation("eks", "UpdateClusterVersion")
def update_cluster_version(call: Call) -> dict[str, Any]:
    """Update to the next minor version: EKS skips none and never goes back."""
    cluster = _ready(call, "name")
    known = versions.offered(call.world)
    wanted, current = call.params["version"], cluster.document["version"]
    if wanted not in known:
        raise invalid_parameter(f"unsupported Kubernetes version {wanted}")
    if current not in known or known.index(wanted) != known.index(current) + 1:
        raise invalid_parameter(f"Unsupported Kubernetes minor version update from {current} to {wanted}")
    change = {"version": wanted}
    return {"update": _start(call, cluster, "VersionUpdate", {"Version": wanted}, change)}


@operation("eks", "AssociateEncryptionConfig")
def associate_encryption_config(call: Call) -> dict[str, Any]:
    """Encrypt secrets from now on; it cannot be undone."""
    cluster = _ready(call, "clusterName")
    configs = call.params["encryptionConfig"]
    checks.encryption(call, configs)
    if cluster.document["encryptionConfig"]:
        raise in_use("Cluster already has encryption config", clusterName=call.params["clusterName"])
    change = {"encryptionConfig": deepcopy(configs)}
    return {
        "update": _start(call, cluster, "AssociateEncryptionConfig", {"EncryptionConfig": configs}, change)
    }


def _ready(call: Call, parameter: str) -> Cluster:
    checks.shape(call)
    cluster = cluster_of(call, parameter)
    if cluster.is_updating:
        name = cluster.document["name"]
        raise in_use(f"Cluster {name} already has an update in progress", clusterName=name)
    require_active(cluster)
    return cluster


def _change(call: Call, cluster: Cluster) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the kind of update, its parameters as DescribeUpdate shows them, and the document's changes."""
    document = cluster.document
    kinds = [name for name in call.params if name not in ("name", "clientRequestToken")]
    config = call.params.get("resourcesVpcConfig", {})
    if len(kinds) != 1 or (set(config) & set(_ENDPOINT) and set(config) & set(_NETWORK)):
        raise invalid_parameter("Only one type of update can be allowed")
    value: Any = call.params[kinds[0]]
    if kinds[0] == "resourcesVpcConfig":
        return _network_change(call, document, config)
    if kinds[0] == "logging":
        change = {"logging": {"clusterLogging": logging_of(value)}}
        return "LoggingUpdate", {"ClusterLogging": value}, _new(document, change, "logging")
    if kinds[0] == "accessConfig":
        return _access_change(document, value["authenticationMode"])
    if kinds[0] == "upgradePolicy":
        change = {"upgradePolicy": dict(value)}
        return "UpgradePolicyUpdate", {"UpgradePolicy": value}, _new(document, change, "upgradePolicy")
    if kinds[0] == "deletionProtection":
        change = {"deletionProtection": value}
        return "DeletionProtectionUpdate", {"DeletionProtection": value}, _new(document, change, kinds[0])
    raise invalid_parameter(f"this stand-in cannot update {kinds[0]}")


def _network_change(
    call: Call, document: dict[str, Any], config: dict[str, Any]
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    merged = document["resourcesVpcConfig"] | config
    checks.endpoint(merged)
    if set(config) & set(_NETWORK):
        checks.network(call, merged)
    names = _ENDPOINT | _NETWORK
    kind = "VpcConfigUpdate" if set(config) & set(_NETWORK) else "EndpointAccessUpdate"
    change = {"resourcesVpcConfig": merged}
    return (
        kind,
        {names[key]: value for key, value in config.items()},
        _new(document, change, "resourcesVpcConfig"),
    )


def _access_change(document: dict[str, Any], mode: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    current = document["accessConfig"]["authenticationMode"]
    # The way from CONFIG_MAP over both to API is one-way.
    if _MODES.index(mode) < _MODES.index(current):
        raise invalid_parameter(f"Unsupported authentication mode update from {current} to {mode}")
    change = {"accessConfig": document["accessConfig"] | {"authenticationMode": mode}}
    return "AccessConfigUpdate", {"AuthenticationMode": mode}, _new(document, change, "accessConfig")


# EKS refuses an update that changes nothing; a client has to compare first.
def _new(document: dict[str, Any], change: dict[str, Any], name: str) -> dict[str, Any]:
    if document[name] == change[name]:
        raise invalid_parameter(f"No changes needed for the {name} provided")
    return change


def _start(
    call: Call, cluster: Cluster, kind: str, params: dict[str, Any], change: dict[str, Any]
) -> dict[str, Any]:
    update = updates.start(call.world, cluster.updates, kind, params)
    world, place = call.world, where(call, cluster)
    world.after(world.duration("eks-cluster-update-shows"), _show, place, update["id"])
    world.after(world.duration("eks-cluster-update"), _finish, place, update["id"], change)
    return update


def _show(world: World, place: Where, update: str) -> None:
    cluster = find(world, place)
    running = cluster and cluster.updates[update]["status"] == "InProgress"
    if cluster and running and cluster.document["status"] == "ACTIVE":
        cluster.document["status"] = "UPDATING"


def _finish(world: World, place: Where, update: str, change: dict[str, Any]) -> None:
    cluster = find(world, place)
    if cluster:
        cluster.document.update(change)
        cluster.updates[update]["status"] = "Successful"
        if cluster.document["status"] == "UPDATING":
            cluster.document["status"] = "ACTIVE"
        make_log_group(world, place.region, cluster)

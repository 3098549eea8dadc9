"""Add-ons: active within a minute, degraded without nodes, failed if the cluster has a self-managed copy."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import durations, operation
from cloudrec_sandbox.aws.services.eks import addon_schemas, checks, identity, updates, versions
from cloudrec_sandbox.aws.services.eks.state import (
    Addon,
    Cluster,
    Where,
    arn,
    cluster_of,
    find,
    in_use,
    invalid_parameter,
    new_uid,
    not_found,
    now,
    page,
    require_active,
    same_request,
    where,
)

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

durations({"eks-addon-create": 60, "eks-addon-update": 30, "eks-addon-delete": 30})

_SELF_MANAGED = ("vpc-cni", "kube-proxy", "coredns")
_ON_NODES = ("coredns", "metrics-server", "aws-ebs-csi-driver", "aws-fsx-csi-driver")
_POD_IDENTITY = "eks-pod-identity-agent"
_LOOK_S = 15.0  # how often EKS checks an add-on that lacks something


@operation("eks", "CreateAddon")
def create_addon(call: Call) -> dict[str, Any]:
    """Accept the add-on at once; a conflict shows later, in its status."""
    checks.shape(call)
    cluster, name = cluster_of(call), call.params["addonName"]
    before = cluster.addons.get(name)
    # The same token and parameters: the answer was lost, and the client repeats its call.
    if before and same_request(call, before.parameters):
        return {"addon": before.document}
    if before:
        if before.document["status"] == "CREATE_FAILED":
            raise invalid_parameter(
                f"Addon {name} is in CREATE_FAILED: delete it, or update it", addonName=name
            )
        raise in_use("Addon already exists.", clusterName=cluster.document["name"], addonName=name)
    require_active(cluster)
    version = _version(call, cluster, name)
    addon_schemas.check(name, call.params.get("configurationValues"))
    _check_role(call)
    addon = Addon(_document(call, version), new_uid(), deepcopy(call.params))
    addon.document["podIdentityAssociations"] = identity.associate(
        call, cluster, call.params.get("podIdentityAssociations", []), owner=addon.document["addonArn"]
    )
    cluster.addons[name] = addon
    key = (where(call, cluster), name, addon.uid)
    call.world.after(call.world.duration("eks-addon-create"), _settle, *key)
    return {"addon": addon.document}


def _version(call: Call, cluster: Cluster, name: str) -> str:
    known = versions.addon_versions(name, cluster.document["version"])
    if not known:
        raise invalid_parameter(f"Addon {name} specified is not supported", addonName=name)
    wanted = call.params.get("addonVersion", known[0])
    if wanted not in known:
        raise invalid_parameter(
            f"Addon version specified is not supported: {wanted} of {name} for {cluster.document['version']}",
            addonName=name,
        )
    return str(wanted)


def _check_role(call: Call) -> None:
    arn_given = call.params.get("serviceAccountRoleArn")
    if arn_given:
        checks.iam_role_exists(call, arn_given)


def _document(call: Call, version: str) -> dict[str, Any]:
    wish, name, owner = call.params, call.params["addonName"], call.params["clusterName"]
    document = {
        "addonName": name,
        "clusterName": owner,
        "status": "CREATING",
        "addonVersion": version,
        "health": {"issues": []},
        "addonArn": arn(call, f"addon/{owner}/{name}/{new_uid()}"),
        "createdAt": now(call.world),
        "modifiedAt": now(call.world),
        "tags": dict(wish.get("tags", {})),
        "publisher": "eks",
        "owner": "aws",
        "namespaceConfig": {"namespace": "kube-system"},
    }
    return document | {
        key: wish[key] for key in ("serviceAccountRoleArn", "configurationValues") if key in wish
    }


def _settle(world: World, place: Where, name: str, uid: str) -> None:
    """Set the outcome, and check again while the add-on lacks nodes."""
    cluster = find(world, place)
    addon = cluster.addons.get(name) if cluster else None
    if cluster is None or addon is None or addon.uid != uid or addon.document["status"] == "DELETING":
        return
    code, message = _problem(cluster, addon)
    status = {"": "ACTIVE", "ConfigurationConflict": "CREATE_FAILED"}.get(code, "DEGRADED")
    issues = [{"code": code, "message": message, "resourceIds": []}] if code else []
    addon.document.update({"status": status, "health": {"issues": issues}})
    if status == "DEGRADED":
        world.after(_LOOK_S, _settle, place, name, uid)


# The codes are of botocore's model (AddonIssue).
def _problem(cluster: Cluster, addon: Addon) -> tuple[str, str]:
    name, wish = addon.document["addonName"], addon.parameters
    self_managed = cluster.parameters.get("bootstrapSelfManagedAddons", True) and name in _SELF_MANAGED
    # botocore's model, resolveConflicts: NONE leaves a self-managed copy, and the add-on fails.
    if self_managed and wish.get("resolveConflicts", "NONE") == "NONE":
        return (
            "ConfigurationConflict",
            f"Conflicts found when trying to apply {name}: self-managed copy. Use OVERWRITE",
        )
    has_nodes = any(group.instances for group in cluster.nodegroups.values())
    # coredns and the drivers run as Deployments: without nodes their pods have no place.
    if name in _ON_NODES and not has_nodes:
        return (
            "InsufficientNumberOfReplicas",
            "The add-on is unhealthy because it doesn't have the desired number of replicas.",
        )
    needs_agent = name == "aws-fsx-csi-driver" and addon.document["podIdentityAssociations"]
    # FSx's driver fails without the agent (EKS user guide, fsx-csi-create).
    if needs_agent and _POD_IDENTITY not in cluster.addons:
        return "AddonPermissionFailure", f"{name} uses pod identity, which needs the add-on {_POD_IDENTITY}"
    return "", ""


def _addon_of(call: Call) -> tuple[Cluster, Addon]:
    cluster, name = cluster_of(call), call.params["addonName"]
    if name not in cluster.addons:
        raise not_found(f"No addon: {name} found in cluster: {cluster.document['name']}", addonName=name)
    return cluster, cluster.addons[name]


@operation("eks", "DescribeAddon")
def describe_addon(call: Call) -> dict[str, Any]:
    """Return one add-on."""
    return {"addon": _addon_of(call)[1].document}


@operation("eks", "ListAddons")
def list_addons(call: Call) -> dict[str, Any]:
    """Return the names of a cluster's add-ons."""
    return page(call, "addons", sorted(cluster_of(call).addons))


@operation("eks", "UpdateAddon")
def update_addon(call: Call) -> dict[str, Any]:
    """Change version, configuration or roles."""
    checks.shape(call)
    cluster, addon = _addon_of(call)
    name = addon.document["addonName"]
    if any(update["status"] == "InProgress" for update in addon.updates.values()):
        raise in_use(f"Addon {name} already has an update in progress", addonName=name)
    wish = call.params
    addon_schemas.check(name, wish.get("configurationValues"))
    params = {
        shown: wish[key]
        for key, shown in (
            ("addonVersion", "AddonVersion"),
            ("serviceAccountRoleArn", "ServiceAccountRoleArn"),
            ("resolveConflicts", "ResolveConflicts"),
            ("configurationValues", "ConfigurationValues"),
            ("podIdentityAssociations", "PodIdentityAssociations"),
        )
        if key in wish
    }
    if "addonVersion" in wish:
        addon.document["addonVersion"] = _version(call, cluster, name)
    _check_role(call)
    if "podIdentityAssociations" in wish:
        identity.release(cluster, addon.document["addonArn"])
        addon.document["podIdentityAssociations"] = identity.associate(
            call, cluster, wish["podIdentityAssociations"], owner=addon.document["addonArn"]
        )
    names = ("serviceAccountRoleArn", "configurationValues")
    addon.document.update({key: wish[key] for key in names if key in wish})
    addon.parameters["resolveConflicts"] = wish.get("resolveConflicts", "NONE")
    addon.document.update({"status": "UPDATING", "modifiedAt": now(call.world)})
    update = updates.start(call.world, addon.updates, "AddonUpdate", params)
    key = (where(call, cluster), name, addon.uid)
    call.world.after(call.world.duration("eks-addon-update"), _finish, *key, update["id"])
    return {"update": update}


def _finish(world: World, place: Where, name: str, uid: str, update: str) -> None:
    cluster = find(world, place)
    addon = cluster.addons.get(name) if cluster else None
    if addon and addon.uid == uid:
        addon.updates[update]["status"] = "Successful"
        _settle(world, place, name, uid)


@operation("eks", "DeleteAddon")
def delete_addon(call: Call) -> dict[str, Any]:
    """Delete an add-on within a minute, with its pod identity associations."""
    cluster, addon = _addon_of(call)
    if addon.document["status"] != "DELETING":
        addon.document["status"] = "DELETING"
        key = (where(call, cluster), addon.document["addonName"], addon.uid)
        call.world.after(call.world.duration("eks-addon-delete"), _vanish, *key)
    return {"addon": addon.document}


def _vanish(world: World, place: Where, name: str, uid: str) -> None:
    cluster = find(world, place)
    addon = cluster.addons.get(name) if cluster else None
    if cluster and addon and addon.uid == uid:
        identity.release(cluster, addon.document["addonArn"])
        del cluster.addons[name]

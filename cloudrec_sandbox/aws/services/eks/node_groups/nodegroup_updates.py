"""UpdateNodegroupConfig and UpdateNodegroupVersion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.services.eks import checks, updates
from cloudrec_sandbox.aws.services.eks.node_groups import nodegroup_checks, nodes
from cloudrec_sandbox.aws.services.eks.node_groups.nodegroups import find_group, nodegroup_of
from cloudrec_sandbox.aws.services.eks.state import (
    Nodegroup,
    Where,
    Wishes,
    in_use,
    invalid_parameter,
    invalid_request,
    now,
    where,
)

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

_SIZES = {"minSize": "MinSize", "maxSize": "MaxSize", "desiredSize": "DesiredSize"}
_RETRY_S = 60.0


@operation("eks", "UpdateNodegroupConfig")
def update_nodegroup_config(call: Call) -> dict[str, Any]:
    """Change sizes, labels, taints; the nodes follow."""
    group = _ready(call)
    document, wish = group.document, call.params
    sizes = document["scalingConfig"] | wish.get("scalingConfig", {})
    nodegroup_checks.sizes(sizes)
    params: dict[str, Any] = {_SIZES[key]: value for key, value in wish.get("scalingConfig", {}).items()}
    labels, taints = wish.get("labels", {}), wish.get("taints", {})
    added, removed = labels.get("addOrUpdateLabels", {}), labels.get("removeLabels", [])
    nodegroup_checks.labels(added)
    params |= {"LabelsToAdd": added} if added else {}
    params |= {"LabelsToRemove": removed} if removed else {}
    document["labels"] = {
        key: value for key, value in (document["labels"] | added).items() if key not in removed
    }
    document["taints"] = _taints(document["taints"], taints)
    params |= {"TaintsToAdd": taints["addOrUpdateTaints"]} if taints.get("addOrUpdateTaints") else {}
    params |= {"TaintsToRemove": taints["removeTaints"]} if taints.get("removeTaints") else {}
    nodegroup_checks.update_config(wish.get("updateConfig"))
    nodegroup_checks.repair_config(wish.get("nodeRepairConfig"))
    for key in ("updateConfig", "nodeRepairConfig"):
        if key in wish:
            document[key] = dict(wish[key])
            params[key[0].upper() + key[1:]] = wish[key]
    if not params:
        raise invalid_parameter("Requested update without any changes")
    document["scalingConfig"] = sizes
    return {"update": _start(call, group, "ConfigUpdate", params, ("", ""))}


# A taint is identified by its key and effect; another value replaces it.
def _taints(current: list[dict[str, str]], wish: dict[str, Any]) -> list[dict[str, str]]:
    gone = [*wish.get("addOrUpdateTaints", []), *wish.get("removeTaints", [])]
    keys = {(taint["key"], taint["effect"]) for taint in gone}
    kept = [taint for taint in current if (taint["key"], taint["effect"]) not in keys]
    return kept + [dict(taint) for taint in wish.get("addOrUpdateTaints", [])]


@operation("eks", "UpdateNodegroupVersion")
def update_nodegroup_version(call: Call) -> dict[str, Any]:
    """Replace the nodes by another version of the same launch template, or of Kubernetes."""
    group = _ready(call)
    document, chosen = group.document, call.params.get("launchTemplate")
    params: dict[str, Any] = {}
    if chosen:
        # A node group without a template has one that EKS made, which no call can replace.
        before = document.get("launchTemplate")
        if before is None:
            raise invalid_parameter("A node group made without a launch template cannot be given one")
        data = nodegroup_checks.template(call, chosen)
        if chosen["id"] != before["id"]:
            raise invalid_parameter("The launch template of a node group cannot be changed, only its version")
        types = document.get("instanceTypes") or [data.get("InstanceType", "t3.medium")]
        nodegroup_checks.launchable(call, types, document["amiType"], data)
        params |= {"LaunchTemplateName": chosen["name"], "LaunchTemplateVersion": chosen["version"]}
        document["launchTemplate"] = dict(chosen)
    for key, name in (("version", "Version"), ("releaseVersion", "ReleaseVersion")):
        if key in call.params:
            params[name] = document[key] = call.params[key]
    # botocore's model, force: without it, an update fails if a disruption budget keeps a pod on its node.
    blocked = call.world.state(Wishes).eviction_blocked and not call.params.get("force")
    problem = ("", "")
    if blocked:
        text = "Reached max retries while trying to evict pods from nodes in node group"
        problem = ("PodEvictionFailure", text)
    return {"update": _start(call, group, "VersionUpdate", params, _scaled_up(call, group) or problem)}


def _scaled_up(call: Call, group: Nodegroup) -> tuple[str, str] | None:
    """Return why a version update cannot launch a new node before it ends an old one.

    "Update behavior for managed node groups", EKS's user guide: by default the scale up phase launches at
    least one new node first, and insufficient capacity or a limit of instances is a NodeCreationFailure. The
    strategy MINIMAL ends the old node first.
    """
    if group.document["updateConfig"].get("updateStrategy", "DEFAULT") == "MINIMAL" or not group.instances:
        return None
    failure = nodes.lacks_room(call.world, call.region, group)
    return ("NodeCreationFailure", failure.message) if failure else None


def _ready(call: Call) -> Nodegroup:
    checks.shape(call)
    group = nodegroup_of(call)[1]
    name = group.document["nodegroupName"]
    if any(update["status"] == "InProgress" for update in group.updates.values()):
        raise in_use(f"Nodegroup {name} already has an update in progress", nodegroupName=name)
    if group.document["status"] not in ("ACTIVE", "DEGRADED"):
        raise invalid_request(f"Nodegroup {name} is not in ACTIVE status", nodegroupName=name)
    return group


def _start(
    call: Call, group: Nodegroup, kind: str, params: dict[str, Any], problem: tuple[str, str]
) -> dict[str, Any]:
    world, document = call.world, group.document
    update = updates.start(world, group.updates, kind, params)
    document["status"], document["modifiedAt"] = "UPDATING", now(world)
    key = (where(call, nodegroup_of(call)[0]), document["nodegroupName"], group.uid)
    if kind == "ConfigUpdate":
        world.after(0, _scale, *key)
    world.after(world.duration("eks-nodegroup-update"), _finish, key[0], key[1:], update["id"], problem)
    return update


def _scale(world: World, place: Where, name: str, uid: str) -> None:
    """Launch or terminate instances until there are as many as desired."""
    found = find_group(world, place, name, uid)
    if found is None or found[1].document["status"] == "DELETING":
        return
    cluster, group = found
    surplus = len(group.instances) - group.document["scalingConfig"]["desiredSize"]
    if surplus > 0:
        nodes.terminate(world, place.region, group, surplus)
    failure = nodes.launch(world, place.region, cluster, group)
    # A group that has become degraded stays so until it has scaled out, also at a size of 0
    # (https://github.com/aws/containers-roadmap/issues/2326).
    if failure:
        group.problem = {"code": failure.code, "message": failure.message}
    elif group.document["scalingConfig"]["desiredSize"]:
        group.problem = group.failure = None
    # Capacity may come back: EKS tries again, and the update itself does not fail.
    if failure:
        world.after(_RETRY_S, _scale, place, name, uid)


def _finish(
    world: World, place: Where, key: tuple[str, str], update_id: str, problem: tuple[str, str]
) -> None:
    found = find_group(world, place, *key)
    if found is None:
        return
    group = found[1]
    update = group.updates[update_id]
    code, message = problem
    update["status"] = "Failed" if code else "Successful"
    if code:
        error = {"errorCode": code, "errorMessage": message, "resourceIds": list(group.instances)}
        update["errors"] = [error]
    if group.document["status"] == "UPDATING":
        group.document["status"] = "ACTIVE"

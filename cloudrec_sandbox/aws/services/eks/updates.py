"""Updates: what is in progress with a cluster, a node group or an add-on, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.services.eks.state import cluster_of, new_uid, not_found, now, page

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World


def start(
    world: World, updates: dict[str, dict[str, Any]], kind: str, params: dict[str, Any]
) -> dict[str, Any]:
    """Add an update in progress; `params` by botocore's UpdateParamType."""
    update = {
        "id": new_uid(),
        "status": "InProgress",
        "type": kind,
        "params": [{"type": name, "value": _text(value)} for name, value in params.items()],
        "createdAt": now(world),
        "errors": [],
    }
    updates[update["id"]] = update
    return update


def _text(value: Any) -> str:  # noqa: ANN401 - any parameter
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of(call: Call, cluster_parameter: str = "name") -> dict[str, dict[str, Any]]:
    cluster = cluster_of(call, cluster_parameter)
    group, addon = call.params.get("nodegroupName"), call.params.get("addonName")
    if group is not None:
        if group not in cluster.nodegroups:
            raise not_found(f"No node group found for name: {group}.")
        return cluster.nodegroups[group].updates
    if addon is not None:
        if addon not in cluster.addons:
            raise not_found(f"No addon: {addon} found in cluster: {cluster.document['name']}")
        return cluster.addons[addon].updates
    return cluster.updates


@operation("eks", "ListUpdates")
def list_updates(call: Call) -> dict[str, Any]:
    """Return the ids of all updates."""
    return page(call, "updateIds", list(_of(call)))


@operation("eks", "DescribeUpdate")
def describe_update(call: Call) -> dict[str, Any]:
    """Return one update."""
    updates = _of(call)
    name = call.params["updateId"]
    if name not in updates:
        raise not_found(f"No update found for ID: {name}")
    return {"update": updates[name]}

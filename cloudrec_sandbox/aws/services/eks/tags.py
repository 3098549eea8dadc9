"""Tags of EKS's resources by ARN, and their inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import Entry, inventory, operation
from cloudrec_sandbox.aws.services.eks.state import Eks, eks_of, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World


def tagged(eks: Eks) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield everything that can have tags: its kind (cluster, nodegroup, ...), its ARN and its tags."""
    for cluster in eks.clusters.values():
        yield "cluster", cluster.document["arn"], cluster.document["tags"]
        for group in cluster.nodegroups.values():
            yield "nodegroup", group.document["nodegroupArn"], group.document["tags"]
        for addon in cluster.addons.values():
            yield "addon", addon.document["addonArn"], addon.document["tags"]
        for entry in cluster.entries.values():
            yield "access-entry", entry.document["accessEntryArn"], entry.document["tags"]
        for association in cluster.associations.values():
            yield "podidentityassociation", association["associationArn"], association["tags"]


def _tags_of(call: Call) -> dict[str, str]:
    wanted = call.params["resourceArn"]
    for _, arn, tags in tagged(eks_of(call)):
        if arn == wanted:
            return tags
    raise not_found(f"No resource found for ARN: {wanted}")


@operation("eks", "TagResource")
def tag_resource(call: Call) -> dict[str, Any]:
    """Add or change tags."""
    _tags_of(call).update(call.params["tags"])
    return {}


@operation("eks", "UntagResource")
def untag_resource(call: Call) -> dict[str, Any]:
    """Remove tags."""
    tags = _tags_of(call)
    for key in call.params["tagKeys"]:
        tags.pop(key, None)
    return {}


@operation("eks", "ListTagsForResource")
def list_tags(call: Call) -> dict[str, Any]:
    """Return all tags of one resource."""
    return {"tags": dict(_tags_of(call))}


@operation("eks", "*", order=100)
def refuse(call: Call) -> dict[str, Any]:
    """Refuse an operation without a handler: moto's EKS does not know these clusters."""
    raise AwsError("NotImplemented", f"this stand-in has no eks {call.action}", status=501)


@inventory
def everything(world: World) -> Iterator[Entry]:
    """Yield clusters and everything in them."""
    for eks in world.states(Eks).values():
        for name, cluster in eks.clusters.items():
            yield Entry("eks", "cluster", name)
            for kind, names in (
                ("nodegroup", cluster.nodegroups),
                ("addon", cluster.addons),
                ("access-entry", cluster.entries),
                ("pod-identity-association", cluster.associations),
            ):
                for each in names:
                    yield Entry("eks", kind, f"{name}/{each}")

"""Checks permissions if `enforce_iam` of /_control is on: by the policies of the project and the resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_sandbox.gcp.api.registry import authority
from cloudrec_sandbox.gcp.services.iam import policies

_TYPES = {"container": "Cluster"}
# The services of whose resources conditions know the name ("Resource attributes for IAM Conditions"), and the
# collections of Compute, which has names for some types only.
_NAMED = ("compute", "container", "resourcemanager")
_NAMED_IN_COMPUTE = frozenset(
    (
        *("backendServices", "disks", "firewalls", "forwardingRules", "globalForwardingRules", "images"),
        *("instances", "instanceTemplates", "snapshots"),
    )
)

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.world import World


@authority
def may(world: World, caller: str, permission: str, project: str, resource: str) -> bool:
    """Return whether a policy gives the caller a permission in the project, or on the resource itself."""
    who = f"serviceAccount:{caller}"
    holders = (f"projects/{project}", resource, f"b/{resource.partition('/')[0]}")
    known = world.state(policies.Policies).policies
    name, kind = _named(permission, resource)
    return any(
        policies.allows(world, holder, who, permission, name=name, kind=kind)
        for holder in holders
        if holder in known
    )


def _named(permission: str, resource: str) -> tuple[str, str]:
    """Return the full name and the type of a permission's resource, as conditions see them."""
    service, collection, _ = permission.split(".")
    if service != "storage":
        known = resource if service in _NAMED else ""
        if service == "compute" and collection not in _NAMED_IN_COMPUTE:
            known = ""
        return known, f"{service}.googleapis.com/{_TYPES.get(service, '')}"
    # Lists are of the bucket; actions on an object or a folder are of that.
    if collection == "buckets" or permission.endswith(".list"):
        return f"projects/_/buckets/{resource}", "storage.googleapis.com/Bucket"
    bucket, _, name = resource.partition("/")
    return f"projects/_/buckets/{bucket}/{collection}/{name}", "storage.googleapis.com/Object"

"""Subnets and their secondary ranges."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from google.cloud.compute_v1.types.compute import Subnetwork, SubnetworksSetPrivateIpGoogleAccessRequest

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest
from cloudrec_sandbox.gcp.resources import checks, store
from cloudrec_sandbox.gcp.resources.operations import Failure
from cloudrec_sandbox.gcp.services.compute import changes, collections, references
from cloudrec_sandbox.gcp.services.compute.collections import Collection
from cloudrec_sandbox.gcp.services.compute.network import profiles, ranges

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

durations({"compute-subnetwork": 15})

_MOST_RANGES = 170
_PATCHED = frozenset(
    (
        "secondaryIpRanges",
        "privateIpGoogleAccess",
        "enableFlowLogs",
        "logConfig",
        "description",
        "fingerprint",
    )
)
SUBNETWORKS = Collection(
    name="subnetworks",
    noun="subnetwork",
    scope="region",
    message=Subnetwork,
    duration="compute-subnetwork",
    quota="SUBNETWORKS",
    refers=("network",),
)


def _check(call: Call, document: dict[str, Any]) -> None:
    if not document.get("network"):
        raise GcpError(
            "INVALID_ARGUMENT",
            "Required field 'resource.network' not specified",
            classic="required",
        )
    profiles.check_subnet(call.world, {**document, "region": call.params["region"]})
    primary = ranges.block(document.get("ipCidrRange"), "resource.ipCidrRange")
    _check_ranges(document, primary)
    document["gatewayAddress"] = str(primary[1])
    document.setdefault("privateIpGoogleAccess", False)
    document.setdefault("purpose", "PRIVATE")
    document.setdefault("stackType", "IPV4_ONLY")
    document.setdefault("privateIpv6GoogleAccess", "DISABLE_GOOGLE_ACCESS")
    references.stamp(document)


def _check_ranges(document: dict[str, Any], primary: ipaddress.IPv4Network) -> None:
    """Check the secondary ranges: names are unique, and no range overlaps another one."""
    further = document.get("secondaryIpRanges", [])
    names = [checks.name(each.get("rangeName"), "resource.secondaryIpRanges.rangeName") for each in further]
    if len(names) != len(set(names)) or len(names) > _MOST_RANGES:
        raise GcpError(
            "INVALID_ARGUMENT",
            f"Invalid value for field 'resource.secondaryIpRanges': '{', '.join(names)}'. Range names must be"
            f" different, and at most {_MOST_RANGES}.",
        )
    seen = [primary]
    for each in further:
        block = ranges.block(each.get("ipCidrRange"), "resource.secondaryIpRanges.ipCidrRange")
        clash = next((known for known in seen if known.overlaps(block)), None)
        if clash:
            raise GcpError(
                "INVALID_ARGUMENT",
                f"Invalid value for field 'resource.secondaryIpRanges': '{block}'. Invalid IPCidrRange:"
                f" {block} conflicts with {clash} of the same subnetwork.",
            )
        seen.append(block)


def blocks(document: dict[str, Any]) -> list[ipaddress.IPv4Network]:
    """Return all ranges of a subnet."""
    texts = [
        document["ipCidrRange"],
        *(each["ipCidrRange"] for each in document.get("secondaryIpRanges", [])),
    ]
    return [ipaddress.IPv4Network(text) for text in texts]


def fits(world: World, path: str) -> Failure | None:
    """Return the failure if another range overlaps, which Google checks at the operation's end."""
    document = store.need(world, "compute", path).document
    network = store.path_of(document["network"])
    for block in blocks(document):
        owner = ranges.conflict(world, network, block, but=path)
        if owner:
            return Failure("INVALID_USAGE", f"Invalid IPCidrRange: {block} conflicts with existing {owner}.")
    return None


collections.reads(SUBNETWORKS)
changes.inserts(SUBNETWORKS, _check, fits)
changes.deletes(SUBNETWORKS)


@rest(
    "compute",
    "subnetworks.patch",
    "PATCH",
    SUBNETWORKS.url + "/{name}",
    body=Subnetwork,
    query=("requestId", "drainTimeoutSeconds"),
    permission="compute.subnetworks.update",
)
def patch(call: Call) -> dict[str, Any]:
    """Change what can be changed, if the client has read the present version."""
    resource = references.ready(SUBNETWORKS.need(call))
    wishes = {name: value for name, value in call.body.items() if resource.document.get(name) != value}
    # A fingerprint from an older read: another client's change would be overwritten.
    references.check_stamp(resource, call.body)
    if fixed := sorted(set(wishes) - _PATCHED):
        raise GcpError(
            "INVALID_ARGUMENT", f"Invalid value for field 'resource.{fixed[0]}': it cannot be patched."
        )
    wanted = {**resource.document, **wishes}
    _check_ranges(wanted, blocks(resource.document)[0])
    profiles.check_subnet(call.world, {**wanted, "region": call.params["region"]})
    seconds = call.world.duration("compute-change")
    return changes.change(call, resource, "patch", seconds, changes.merge, (wishes,))


@rest(
    "compute",
    "subnetworks.setPrivateIpGoogleAccess",
    "POST",
    SUBNETWORKS.url + "/{name}/setPrivateIpGoogleAccess",
    body=SubnetworksSetPrivateIpGoogleAccessRequest,
    query=("requestId",),
    permission="compute.subnetworks.setPrivateIpGoogleAccess",
)
def set_private_access(call: Call) -> dict[str, Any]:
    """Set whether machines without external addresses reach Google's services."""
    resource = references.ready(SUBNETWORKS.need(call))
    wishes = {"privateIpGoogleAccess": call.body.get("privateIpGoogleAccess", False)}
    profiles.check_subnet(call.world, {**resource.document, **wishes, "region": call.params["region"]})
    seconds = call.world.duration("compute-change")
    return changes.change(call, resource, "setPrivateIpGoogleAccess", seconds, changes.merge, (wishes,))

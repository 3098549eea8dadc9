"""Reserved addresses: single ones, regional or global, and blocks for Google's own services."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from google.cloud.compute_v1.types.compute import Address

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations
from cloudrec_sandbox.gcp.resources import store
from cloudrec_sandbox.gcp.services.compute import changes, collections, references
from cloudrec_sandbox.gcp.services.compute.collections import Collection
from cloudrec_sandbox.gcp.services.compute.network import ranges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

durations({"compute-address": 5})

_PREFIXES = range(8, 31)
_OUTSIDE = int(ipaddress.IPv4Address("34.0.0.0"))


def _suffix(document: Mapping[str, Any]) -> str:
    """Return the permission's suffix: internal and global addresses have separate permissions."""
    return "Internal" if document.get("addressType") == "INTERNAL" else ""


REGIONAL = Collection(
    name="addresses",
    noun="address",
    scope="region",
    message=Address,
    duration="compute-address",
    quota="STATIC_ADDRESSES",
    refers=("network", "subnetwork"),
    suffix=_suffix,
)
GLOBAL = Collection(
    name="addresses",
    noun="address",
    scope="global",
    front="globalAddresses",
    message=Address,
    duration="compute-address",
    quota="STATIC_ADDRESSES",
    refers=("network",),
    suffix=_suffix,
)


def _check(call: Call, document: dict[str, Any]) -> None:
    if document.get("purpose") in ("VPC_PEERING", "PRIVATE_SERVICE_CONNECT"):
        _check_block(call, document)
    elif document.setdefault("addressType", "EXTERNAL") == "EXTERNAL":
        number = int(call.world.now() * 1000) % 2**24 + len(store.within(call.world, "compute", "projects/"))
        document["address"] = str(ipaddress.IPv4Address(_OUTSIDE + number))
        document.setdefault("networkTier", "PREMIUM")
    elif not document.get("subnetwork"):
        raise _invalid("subnetwork", "", "An internal address needs a subnetwork.")
    references.stamp(document, "labelFingerprint")


def _check_block(call: Call, document: dict[str, Any]) -> None:
    """Check a block that Google's services get in a network; nothing else there may use it."""
    if "region" in call.params or document.get("addressType") != "INTERNAL" or not document.get("network"):
        raise _invalid("purpose", document["purpose"], "It is of global internal addresses with a network.")
    bits = document.get("prefixLength", 0)
    if bits not in _PREFIXES:
        raise _invalid("prefixLength", bits, f"Must be from {_PREFIXES.start} to {_PREFIXES.stop - 1}.")
    network = store.path_of(document["network"])
    if "address" not in document:
        found = ranges.free(call.world, network, bits)
        if found is None:
            raise _invalid("prefixLength", bits, "No block of this size is free in the network.")
        document["address"] = str(found[0])
    try:
        block = ipaddress.IPv4Network(f"{document['address']}/{bits}")
    except ValueError as error:
        raise _invalid("address", document["address"], "It is not the first of a block.") from error
    if owner := ranges.conflict(call.world, network, block):
        raise _invalid("address", document["address"], f"Requested range {block} conflicts with {owner}.")


def _invalid(field: str, value: object, why: str) -> GcpError:
    return GcpError("INVALID_ARGUMENT", f"Invalid value for field 'resource.{field}': '{value}'. {why}")


for _collection in (REGIONAL, GLOBAL):
    collections.reads(_collection)
    changes.inserts(_collection, _check)
    changes.deletes(_collection)


@collections.view("addresses")
def status(world: World, resource: Resource) -> dict[str, Any]:
    """Return RESERVING while it is being made, IN_USE while it is used, else RESERVED."""
    user = references.user_of(world, resource)
    if user:
        return {"status": "IN_USE", "users": [store.link(user)]}
    return {"status": "RESERVING" if resource.hidden.get("busy") else "RESERVED"}


@references.guard("addresses")
def spoken_for(world: World, resource: Resource) -> str:
    """Return the user of an address without a link to it: a rule by the address, a peering by the name."""
    for other in store.within(world, "compute", "projects/", "forwardingRules"):
        if other.document.get("IPAddress") == resource.document.get("address"):
            return other.path
    if "network" not in resource.document:
        return ""
    network = store.find(world, "compute", store.path_of(resource.document["network"]))
    peerings = network.document.get("peerings") if network else None
    if network and peerings and resource.name in network.hidden["peering_ranges"]:
        return f"{network.path}/peerings/{peerings[0]['name']}"
    return ""

"""Blocks of addresses: which texts are valid, which blocks of a network are taken, and which are free."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.resources import store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.gcp.api.world import World

_SMALLEST = 29  # prefix length of a subnet's smallest block
_LARGEST = 4
_FORBIDDEN = tuple(
    map(
        ipaddress.IPv4Network,
        ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "199.36.153.4/30", "199.36.153.8/30"),
    )
)
_AUTOMATIC = ipaddress.IPv4Network("10.0.0.0/8")


def block(text: str | None, field: str) -> ipaddress.IPv4Network:
    """Return a subnet's block; GcpError for one that is malformed or not allowed."""
    try:
        found = ipaddress.IPv4Network(text or "")
    except ValueError as error:
        raise _invalid(field, text, "Must be a CIDR address range of which no host bits are set.") from error
    if "/" not in str(text) or not _LARGEST <= found.prefixlen <= _SMALLEST:
        raise _invalid(field, text, f"The prefix must be from /{_LARGEST} to /{_SMALLEST}.")
    if any(found.overlaps(each) for each in _FORBIDDEN):
        raise _invalid(field, text, "The range is reserved and cannot be used.")
    return found


def any_block(text: str, field: str) -> None:
    """Raise GcpError for a text that is no block of IPv4 or IPv6 addresses."""
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise _invalid(field, text, "Must be a valid CIDR address range.") from error


def _invalid(field: str, text: str | None, why: str) -> GcpError:
    return GcpError("INVALID_ARGUMENT", f"Invalid value for field '{field}': '{text or ''}'. {why}")


def taken(world: World, network: str, *, but: str = "") -> Iterator[tuple[ipaddress.IPv4Network, str]]:
    """Yield the blocks of a network, by path, with their owners; without those of the path `but`."""
    link = store.link(network)
    for each in store.within(world, "compute", "projects/", "subnetworks"):
        if each.document["network"] == link and each.path != but:
            region = each.path.split("/")[3]
            owner = f"subnetwork '{each.name}' in region '{region}'"
            yield ipaddress.IPv4Network(each.document["ipCidrRange"]), owner
            for further in each.document.get("secondaryIpRanges", []):
                yield ipaddress.IPv4Network(further["ipCidrRange"]), owner
    for each in store.within(world, "compute", "projects/", "addresses"):
        document = each.document
        if document.get("network") == link and document.get("prefixLength") and each.path != but:
            text = f"{document['address']}/{document['prefixLength']}"
            yield ipaddress.IPv4Network(text), f"address '{each.name}'"


def conflict(world: World, network: str, wanted: ipaddress.IPv4Network, *, but: str = "") -> str:
    """Return the owner of a block that overlaps with `wanted`; '' if none does."""
    return next((owner for found, owner in taken(world, network, but=but) if found.overlaps(wanted)), "")


def free(world: World, network: str, bits: int) -> ipaddress.IPv4Network | None:
    """Return a free block with a prefix of `bits` bits; None if there is none."""
    known = [found for found, _ in taken(world, network)]
    for wanted in _AUTOMATIC.subnets(new_prefix=bits):
        if not any(found.overlaps(wanted) for found in known):
            return wanted
    return None

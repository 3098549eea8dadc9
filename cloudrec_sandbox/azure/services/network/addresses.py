"""Address ranges: what Azure refuses of a network's and a subnet's ranges."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.errors import ArmError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RESERVED = 5  # addresses that Azure reserves in every subnet
_NARROWEST = 29  # prefix length of the smallest subnet
_WIDEST = 2


def network(prefix: str, owner: str) -> IPv4Network:
    """Return the range of a prefix; ArmError if it is not one, or has bits set beyond its length."""
    try:
        found = IPv4Network(prefix, strict=False)
    except ValueError as error:
        raise ArmError(
            "InvalidAddressPrefixFormat",
            f"Address prefix {prefix} of resource {owner} is not formatted correctly. It should follow CIDR "
            "notation, for example 10.0.0.0/24.",
        ) from error
    if "/" not in prefix or str(found) != prefix:
        raise ArmError(
            "InvalidCIDRNotation",
            f"The address prefix {prefix} in resource {owner} has an invalid CIDR notation. For the given "
            f"prefix length, the address prefix should be {found}.",
        )
    return found


def check_spaces(prefixes: Sequence[str], owner: str) -> list[IPv4Network]:
    """Return a network's address spaces; ArmError if they are wrong."""
    spaces = [network(prefix, owner) for prefix in prefixes]
    for number, space in enumerate(spaces):
        if not _WIDEST <= space.prefixlen <= _NARROWEST:
            raise ArmError(
                "InvalidAddressPrefixFormat",
                f"Address prefix {space} of resource {owner} must be between /{_WIDEST} and /{_NARROWEST}.",
            )
        if any(space.overlaps(other) for other in spaces[:number]):
            raise ArmError(
                "NetcfgInvalidAddressSpaces", f"Address spaces of the virtual network {owner} overlap."
            )
    return spaces


def check_subnet(
    name: str, prefixes: Sequence[str], spaces: Iterable[IPv4Network], others: Mapping[str, Sequence[str]]
) -> None:
    """Check that a subnet's prefixes are in its network's spaces and overlap none of `others`, by name."""
    for prefix in prefixes:
        block = network(prefix, name)
        if block.prefixlen > _NARROWEST:
            raise ArmError(
                "NetcfgSubnetRangeTooSmall",
                f"Subnet '{name}' is not valid: {prefix} is smaller than /{_NARROWEST}.",
            )
        if not any(block.subnet_of(space) for space in spaces):
            raise ArmError(
                "NetcfgSubnetRangeOutsideVnet",
                f"Subnet '{name}' is not valid because its IP address range is outside the IP address range "
                "of virtual network.",
            )
        for other, taken in others.items():
            if any(block.overlaps(IPv4Network(range_)) for range_ in taken):
                raise ArmError(
                    "NetcfgSubnetRangesOverlap",
                    f"Subnet '{name}' is not valid because its IP address range overlaps with that of an "
                    f"existing subnet '{other}'.",
                )


def room(prefixes: Sequence[str]) -> int:
    """Return how many addresses of a subnet can be used."""
    return sum(IPv4Network(prefix).num_addresses - RESERVED for prefix in prefixes)

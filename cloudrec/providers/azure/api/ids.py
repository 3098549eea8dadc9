"""Resource ids: paths of types and names.

Azure compares ids without regard to case and writes one id in several ways. The functions here always write
the same text for the same resource, so that ids can be compared as strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GROUP = 4  # index of the resource group's name in an id that is split at its slashes


def group(subscription: str, name: str) -> str:
    """Return a resource group's id."""
    return f"/subscriptions/{subscription}/resourceGroups/{name.lower()}"


def resource(subscription: str, group_name: str, of_type: str, *names: str) -> str:
    """Return the id of a resource, or of one below it.

    Args:
        subscription: its id.
        group_name: the resource group's name.
        of_type: such as "Microsoft.Network/virtualNetworks/subnets".
        names: one for each part of the type after the namespace.
    """
    namespace, *parts = of_type.split("/")
    path = "/".join(f"{part}/{name}" for part, name in zip(parts, names, strict=True))
    return f"{group(subscription, group_name)}/providers/{namespace}/{path}"


def known(identity: str | None) -> str:
    """Return a described resource's id, which is never None, though the SDK's types allow it."""
    if identity is None:
        raise ValueError("Azure describes a resource without an id")
    return identity


def group_of(identity: str | None) -> str:
    """Return the name of a resource's resource group, in lower case."""
    return known(identity).split("/")[_GROUP].lower()


def names(identity: str | None) -> Sequence[str]:
    """Return the names in a resource's id after its namespace, in lower case: its parents' and its own."""
    return known(identity).lower().rpartition("/providers/")[2].split("/")[2::2]


def same(one: str, other: str) -> bool:
    """Return whether two ids name the same resource."""
    return one.lower() == other.lower()

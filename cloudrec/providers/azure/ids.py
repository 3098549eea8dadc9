"""Resource ids: paths of types and names, in which case does not count, but which we always write alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GROUP = 4  # of the parts of an id: where the resource group's name is


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


def group_of(identity: str) -> str:
    """Return the name of the resource group that a resource is in."""
    return identity.split("/")[_GROUP].lower()


def names(identity: str) -> Sequence[str]:
    """Return the names in a resource's id after its namespace: its parents' and its own."""
    return identity.lower().rpartition("/providers/")[2].split("/")[2::2]


def same(one: str, other: str) -> bool:
    """Tell whether two ids are of one thing."""
    return one.lower() == other.lower()

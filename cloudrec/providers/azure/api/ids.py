"""Resource ids: paths of types and names.

Azure compares ids without regard to case and writes one id in several ways. The functions here always write
the same text for the same resource, so that ids can be compared as strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEAST = 5  # parts of the shortest id, that of a resource group
_SHOWN = 80  # characters of a wrong id in a message
_SUBSCRIPTION = 2  # index of the subscription's id in an id that is split at its slashes
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
    """Return a described resource's id; ValueError if it is none.

    An id with an empty name would be that of the list of all resources of the type, and never be gone.
    """
    parts = identity.split("/") if isinstance(identity, str) else []
    if (
        len(parts) < _LEAST
        or len(parts) % 2 == 0
        or not all(parts[1:])
        or parts[0]
        or not str(identity).isprintable()
    ):
        raise ValueError(f"Azure describes a resource with the id {str(identity)[:_SHOWN]!r}")
    return str(identity)


def group_of(identity: str | None) -> str:
    """Return the name of a resource's resource group, in lower case."""
    return known(identity).split("/")[_GROUP].lower()


def subscription_of(identity: str | None) -> str:
    """Return the id of a resource's subscription."""
    return known(identity).split("/")[_SUBSCRIPTION]


def names(identity: str | None) -> Sequence[str]:
    """Return the names in a resource's id after its namespace, in lower case: its parents' and its own."""
    return known(identity).lower().rpartition("/providers/")[2].split("/")[2::2]


def same(one: str, other: str) -> bool:
    """Return whether two ids name the same resource."""
    return one.lower() == other.lower()

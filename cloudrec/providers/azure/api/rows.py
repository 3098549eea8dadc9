"""Reads what all of Azure's descriptions of resources have: state, region, tags, time of creation."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, TAG_OWNER, Condition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from cloudrec.providers.azure.api import models

_STATES: Mapping[str, Condition] = {
    "succeeded": Condition.READY,
    "failed": Condition.FAILED,
    "canceled": Condition.FAILED,
    "deleting": Condition.DELETING,
}
_PREFIX = "cloudrec-"  # of the names of all resource groups that cloudrec creates


class Tracked(Protocol):
    """The fields that every resource with a region and tags has in the SDK."""

    @property
    def id(self) -> str | None:
        """Its resource id."""

    @property
    def name(self) -> str | None:
        """Its name in its group."""

    @property
    def location(self) -> str | None:
        """Its region."""

    @property
    def tags(self) -> dict[str, str] | None:
        """Its tags; None if it has none."""


def group_name(cluster: str) -> str:
    """Return the name of a cluster's resource group."""
    return f"{_PREFIX}{cluster}"


def node_group_name(group: str) -> str:
    """Return the name of the resource group that AKS makes for the nodes of a cluster in a group."""
    return f"{group}-nodes"


def state_of(row: object) -> tuple[Condition, str]:
    """Return the condition that a provisioning state means, and the reason of a failure.

    A resource without a state exists and is ready. A state that is not in the table, such as Upgrading, is
    one in progress.
    """
    state: object = getattr(row, "provisioning_state", None)
    if state is None:
        return Condition.READY, ""
    text = plain(state)
    condition = _STATES.get(text.lower(), Condition.PENDING)
    return condition, f"its state is {text}" if condition is Condition.FAILED else ""


def place(location: str | None) -> str:
    """Return a region's name in one form; Azure has `East US` at some places and `eastus` at others."""
    return (location or "").lower().replace(" ", "")


def plain(value: object) -> str:
    """Return the text of a string or of a member of an SDK enumeration; empty for None."""
    if value is None:
        return ""
    return str(value.value) if isinstance(value, Enum) else str(value)


def inherited(tags: Mapping[str, str], key: str) -> dict[str, str]:
    """Return the tags of a resource that cannot have any, from its parent's tags.

    Args:
        tags: the parent's.
        key: the resource's key.
    """
    return {TAG_CLUSTER: tags[TAG_CLUSTER], TAG_OWNER: tags.get(TAG_OWNER, ""), TAG_KEY: key}


def created(row: object) -> float | None:
    """Return when a resource was created, in seconds since the epoch; None if Azure does not report it."""
    data: models.resources.SystemData | None = getattr(row, "system_data", None)
    moment: datetime | None = data.created_at if data else getattr(row, "creation_time", None)
    return moment.timestamp() if moment else None

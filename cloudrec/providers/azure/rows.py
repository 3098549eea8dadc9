"""Reading what Azure tells of a thing, whatever the thing is, and whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, TAG_OWNER, Condition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.azure.client import Azure

_STATES: Mapping[str, Condition] = {
    "succeeded": Condition.READY,
    "failed": Condition.FAILED,
    "canceled": Condition.FAILED,
    "deleting": Condition.DELETING,
}
_PREFIX = "cloudrec-"  # what the names of all resource groups of ours begin with


def group_name(cluster: str) -> str:
    """Return the name of a cluster's resource group."""
    return f"{_PREFIX}{cluster}"


def group_names(azure: Azure, cluster: str | None) -> list[str]:
    """Return the names of the resource groups of one cluster, there or not, or of all of ours."""
    if cluster is not None:
        return [group_name(cluster)]
    return [row.name.lower() for row in our_groups(azure)]


def our_groups(azure: Azure) -> list[Any]:
    """Return the resource groups of all clusters; those that AKS makes bear its clusters' tags too."""
    listed = azure.rows(azure.client("resources").resource_groups.list, filter=f"tagName eq '{TAG_CLUSTER}'")
    return [row for row in listed if not row.managed_by]


def state_of(row: Any) -> tuple[Condition, str]:  # noqa: ANN401 - the SDK's model
    """Tell by what Azure calls the provisioning state how far a thing has come; without one, it is there."""
    state = getattr(row, "provisioning_state", None)
    if state is None:
        return Condition.READY, ""
    text = str(plain(state))
    condition = _STATES.get(text.lower(), Condition.PENDING)
    return condition, f"its state is {text}" if condition is Condition.FAILED else ""


def place(location: str | None) -> str:
    """Return a region as we write it; Azure has `East US` at some places and `eastus` at others."""
    return (location or "").lower().replace(" ", "")


def plain(value: Any) -> Any:  # noqa: ANN401 - what the SDK's models hold
    """Return what an enumeration of the SDK's holds; of a value that is none, itself."""
    return getattr(value, "value", value)


def inherited(tags: Mapping[str, str], key: str) -> dict[str, str]:
    """Return the tags that a thing which can have none would have, by those of what it is part of."""
    return {TAG_CLUSTER: tags[TAG_CLUSTER], TAG_OWNER: tags.get(TAG_OWNER, ""), TAG_KEY: key}


def created(row: Any) -> float | None:  # noqa: ANN401 - the SDK's model
    """Tell when a thing was made, in seconds since the epoch; None where Azure does not tell."""
    data = getattr(row, "system_data", None)
    moment = data.created_at if data else getattr(row, "creation_time", None)
    return moment.timestamp() if moment else None

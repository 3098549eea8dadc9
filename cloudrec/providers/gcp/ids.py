"""Paths, by which Google knows things: projects/P/regions/R/subnetworks/N."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# What a collection's one is called in requests, where it is not the collection's name without its s.
_NOUNS: Mapping[str, str] = {
    "addresses": "address",
    "forwardingRules": "forwarding_rule",
    "healthChecks": "health_check",
    "networkEndpointGroups": "network_endpoint_group",
    "resourcePolicies": "resource_policy",
    "targetPools": "target_pool",
    "instanceGroupManagers": "instance_group_manager",
}


def path(link: str) -> str:
    """Return the path of a link, which may begin with an address and a version."""
    start = link.find("projects/")
    return link[start:] if start >= 0 else link


def name(link: str) -> str:
    """Return the last word of a link or path."""
    return link.rpartition("/")[2]


def location(of: str) -> str:
    """Return the region or zone of a path; "global" where it has none."""
    words = path(of).split("/")
    return words[3] if len(words) > 3 and words[2] != "global" else "global"  # noqa: PLR2004 - after projects/P/x


def arguments(of: str) -> dict[str, str]:
    """Return the fields by which Compute Engine's requests name what has this path."""
    words = path(of).split("/")
    if words[2] == "global":
        words = [*words[:2], *words[3:]]
    return {
        _NOUNS.get(key, key.removesuffix("s")): value
        for key, value in zip(words[::2], words[1::2], strict=True)
    }

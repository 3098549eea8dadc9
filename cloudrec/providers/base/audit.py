"""The audit of an account: resources with cloudrec's tags or names, or in its networks, without a driver.

`search` finds what cloudrec makes, kind by kind. The audit finds the rest: by tag without a filter of types,
by name, and by what uses a cluster's networks. It names these resources and removes none of them, since
cloudrec does not know what they hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Observed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNMANAGED = "unmanaged"


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit found.

    Attributes:
        found: the resources, of kind UNMANAGED.
        unsearched: sentences on what could not be searched, and why.
    """

    found: tuple[Observed, ...] = ()
    unsearched: tuple[str, ...] = ()

    @classmethod
    def of(cls, audits: Iterable[Audit]) -> Audit:
        """Return the audits of several regions as one, with each resource once."""
        listed = list(audits)
        found = {seen.identity: seen for audit in listed for seen in audit.found}
        return cls(
            found=tuple(found.values()),
            unsearched=tuple(dict.fromkeys(text for audit in listed for text in audit.unsearched)),
        )


def unmanaged(
    what: str,
    identity: str,
    *,
    cluster: str,
    location: str,
    hourly_usd: float | None,
    tags: Mapping[str, str] | None = None,
    created: float | None = None,
) -> Observed:
    """Return a resource that no driver manages.

    Args:
        what: the cloud's name of its type, and its short name: "instance i-0abc".
        identity: the cloud's unique name of it, such as its ARN.
        cluster: the cluster whose tags, name or network it has; empty if unknown.
        location: its region; empty if it is global.
        hourly_usd: its price in USD an hour; None if unknown.
        tags: its tags.
        created: its creation in seconds since the epoch.
    """
    # The key of its tags is that of the resource that made it, such as a node group for an instance.
    kept = {name: value for name, value in (tags or {}).items() if name != TAG_KEY}
    return Observed(
        kind=UNMANAGED,
        name=what,
        identity=identity,
        condition=Condition.READY,
        tags={**kept, **({TAG_CLUSTER: cluster} if cluster else {})},
        hourly_usd=hourly_usd,
        location=location,
        created=created,
        outside_graph=True,
    )

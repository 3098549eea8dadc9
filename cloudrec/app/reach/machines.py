"""Whether the nodes of a cluster run, as the cloud's machines show it and not the state of its pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.app.money.blocks import NODES
from cloudrec.engine.journal import Missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.spec.models import ClusterSpec


def lacks_machines(
    cluster: ClusterSpec,
    resources: Sequence[Resource],
    found: Sequence[Observed],
    missing: Sequence[Missing] = (),
) -> tuple[Missing, ...]:
    """Return the pools whose nodes do not all run as missing things; nothing for what is unknown.

    Args:
        cluster: the cluster.
        resources: what it should consist of.
        found: what exists of it.
        missing: what it is known to lack. Nodes among it, as those of a block that has not begun, are not
            named again.
    """
    if any(each.what == NODES for each in missing):
        return ()
    seen = {each.key: each for each in found}
    return tuple(
        _missing(cluster, why)
        for resource in resources
        if not resource.is_standby  # the keeper sizes its pools, as runs need it
        and (why := _lack(resource, [seen[each.key] for each in _places(resource) if each.key in seen]))
    )


def _places(resource: Resource) -> Sequence[Resource]:
    return resource.candidates or (resource,)


def _lack(resource: Resource, pools: Sequence[Observed]) -> str:
    """Return what a resource lacks; several candidates count together, since one may take over another's."""
    known = [pool.machines for pool in pools if pool.machines is not None]
    if not known or len(known) < len(pools):
        return ""  # no pool of nodes, or the cloud does not say
    running = sum(each.running for each in known)
    wanted = max(_wanted(resource), sum(each.wanted for each in known))
    if running >= wanted:
        return ""
    lacks = [f"{pool.name}: {each.lack}" for pool, each in zip(pools, known, strict=True) if each.lack]
    if lacks:
        return "; ".join(lacks)
    why = "; ".join(filter(None, (each.reason for each in known)))
    lack = f"{resource.key}: {running} of {wanted} nodes run, and the pool is set to no more"
    return f"{lack}: {why}" if why else lack


def _wanted(resource: Resource) -> int:
    """Return how many nodes a resource with candidates should have; a pool of CPU nodes says it itself."""
    return max((each.nodes for each in resource.candidates), default=0)


def _missing(cluster: ClusterSpec, why: str) -> Missing:
    return Missing(
        what=NODES,
        reason=why,
        remedy=f"`cloudrec up {cluster.provider}` repairs it: it waits for the nodes, or makes them in "
        "another zone or of another type or capacity type of the specification",
    )

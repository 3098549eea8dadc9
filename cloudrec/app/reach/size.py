"""How many GPU nodes and GPUs a cluster has, as the cloud's machines show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.engine.graph import Observed, Resource


@dataclass(frozen=True, kw_only=True)
class ClusterSize:
    """The GPU nodes of a cluster.

    Attributes:
        running: how many run; None if the cloud does not say.
        wanted: how many there should be; None if it is not known.
        gpus: the GPUs of those that run; None if it is not known.
        node_types: the types of the nodes that run, or else of those that are wanted.
    """

    running: int | None = None
    wanted: int | None = None
    gpus: int | None = None
    node_types: tuple[str, ...] = ()

    @property
    def text(self) -> str | None:
        """The nodes for people: `2`, or `1 of 2`; None if that is not known."""
        if self.running is None:
            return None
        if self.wanted is None or self.running == self.wanted:
            return str(self.running)
        return f"{self.running} of {self.wanted}"


def size_of(resources: Sequence[Resource], found: Sequence[Observed]) -> ClusterSize:
    """Return the size of a cluster.

    Args:
        resources: what it should consist of.
        found: what exists of it.
    """
    choices = [resource for resource in resources if resource.candidates]
    if not choices:
        return ClusterSize()
    seen = {each.key: each for each in found}
    candidates = {one.key: one for choice in choices for one in choice.candidates}
    pools = [(one, seen[key].machines) for key, one in candidates.items() if key in seen]
    known = [(one, machines) for one, machines in pools if machines is not None]
    types = {one.node_type: None for one, machines in known if machines.running} or {
        one.node_type: None for one, _ in pools
    }
    if len(known) < len(pools):
        return ClusterSize(node_types=tuple(types))
    # The keeper sizes the pools of a managed cluster, as runs need it.
    asked = sum(max(one.nodes for one in choice.candidates) for choice in choices if not choice.is_standby)
    set_to = sum(machines.wanted for _, machines in known)
    return ClusterSize(
        running=sum(machines.running for _, machines in known),
        wanted=max(asked, set_to),
        gpus=sum(machines.running * one.gpus for one, machines in known),
        node_types=tuple(each for each in types if each),
    )

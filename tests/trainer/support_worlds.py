"""Worlds of one to four ranks: torchrec's modules always use all ranks of the process group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.trainer.support_ranks import RankPool


class Worlds:
    """Runs functions on all ranks of the pool that has the size asked for."""

    def __init__(self, pools: dict[int, RankPool]) -> None:
        self._pools = pools

    def run(self, world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call `function(place, *arguments)` on every rank; the results, by rank."""
        return self._pools[world_size].run(world_size, function, *arguments)

"""Which rank has which table, roughly as torchrec's planner decides it: whole tables, and divided large ones.

torchrec's planner (torchrec.distributed.planner) takes seconds for a machine. This takes microseconds, and
what it finds a place for, torchrec's planner can place in the same way.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudrec.planning.fit.work import Placement

_TRIED = 32  # numbers of divided tables that are tried one by one


@dataclass(frozen=True, slots=True)
class TableNeed:
    """What one table takes over all ranks, or all tables of one rank, in bytes.

    Attributes:
        table_bytes: weights and the optimizer's state.
        exchange_bytes: what the look-ups of a step's batch read and write: ids and pooled embeddings.
    """

    table_bytes: float
    exchange_bytes: float

    @property
    def all_bytes(self) -> float:
        """Both."""
        return self.table_bytes + self.exchange_bytes


@lru_cache(maxsize=512)
def fullest_rank(
    tables: tuple[TableNeed, ...], ranks: int, node: int, placement: Placement = "any"
) -> TableNeed:
    """Return what the fullest rank takes in the best placement that was found.

    The largest tables are divided by rows among the ranks of one machine, or of all machines; the others are
    whole. Each rank with rows of a table computes the table's part of the whole batch, so dividing a table
    multiplies what its look-ups write. How many to divide is tried.

    Args:
        tables: what each table takes.
        ranks: the number of ranks.
        node: ranks of a machine.
        placement: how tables may be placed.
    """
    if ranks == 1 or placement == "replicated":
        return TableNeed(
            table_bytes=sum(each.table_bytes for each in tables),
            exchange_bytes=sum(each.exchange_bytes for each in tables) / ranks,
        )
    ordered = sorted(tables, key=lambda each: each.all_bytes, reverse=True)
    count = len(ordered)
    if placement == "any":
        tried = [*range(min(count, _TRIED) + 1)]
        while tried[-1] < count:
            tried.append(min(tried[-1] * 2, count))
    else:
        tried = [count if placement == "divided" else 0]
    groups = {node, ranks}
    placements = [_placed(ordered, number, ranks, group) for number in tried for group in sorted(groups)]
    return min(placements, key=lambda each: each.all_bytes)


def _placed(ordered: list[TableNeed], divided: int, ranks: int, group: int) -> TableNeed:
    """Return the fullest rank if each of the first tables is divided among a group of ranks."""
    groups = [(0.0, index, 0.0) for index in range(ranks // group)]  # a rank's bytes, and those of tables
    for each in ordered[:divided]:
        load, index, held = groups[0]
        part = each.table_bytes / group
        heapq.heapreplace(groups, (load + part + each.exchange_bytes, index, held + part))
    loads = [(load, index * group + place, held) for load, index, held in groups for place in range(group)]
    heapq.heapify(loads)
    for each in ordered[divided:]:
        load, index, held = loads[0]
        heapq.heapreplace(loads, (load + each.all_bytes, index, held + each.table_bytes))
    load, _, held = max(loads)
    return TableNeed(table_bytes=held, exchange_bytes=load - held)

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

_Load = tuple[float, int, float]  # of a rank: all its bytes, its number, those of its tables
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


@dataclass(frozen=True, slots=True)
class TablePlaces:
    """Where the tables are.

    Attributes:
        divided: the indexes of the tables that are divided by rows; the others are whole.
        group: the ranks that share each divided table.
        rank_bytes: what the tables take on each rank.
    """

    divided: frozenset[int]
    group: int
    rank_bytes: tuple[float, ...]


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
    placements = [_placed(ordered, *way, ranks) for way in _ways(len(ordered), ranks, node, placement)]
    return min(map(_fullest, placements), key=lambda each: each.all_bytes)


def table_places(
    tables: tuple[TableNeed, ...], ranks: int, node: int, placement: Placement = "any"
) -> TablePlaces:
    """Return where the tables are in the placement of `fullest_rank`; its arguments are the same."""
    if ranks == 1 or placement == "replicated":
        every = sum(each.table_bytes for each in tables)
        return TablePlaces(divided=frozenset(), group=1, rank_bytes=(every,) * ranks)
    order = sorted(range(len(tables)), key=lambda index: tables[index].all_bytes, reverse=True)
    ordered = [tables[index] for index in order]

    def fullest(way: tuple[int, int]) -> float:
        return _fullest(_placed(ordered, *way, ranks)).all_bytes

    divided, group = min(_ways(len(ordered), ranks, node, placement), key=fullest)
    by_rank = sorted(_placed(ordered, divided, group, ranks), key=lambda each: each[1])
    return TablePlaces(
        divided=frozenset(order[:divided]), group=group, rank_bytes=tuple(held for _, _, held in by_rank)
    )


def _ways(count: int, ranks: int, node: int, placement: Placement) -> list[tuple[int, int]]:
    """Return the ways to try: how many of the largest tables are divided, and among how many ranks each."""
    if placement == "any":
        tried = [*range(min(count, _TRIED) + 1)]
        while tried[-1] < count:
            tried.append(min(tried[-1] * 2, count))
    else:
        tried = [count if placement == "divided" else 0]
    return [(number, group) for number in tried for group in sorted({node, ranks})]


def _fullest(loads: list[_Load]) -> TableNeed:
    load, _, held = max(loads)
    return TableNeed(table_bytes=held, exchange_bytes=load - held)


def _placed(ordered: list[TableNeed], divided: int, group: int, ranks: int) -> list[_Load]:
    """Return the ranks' loads if each of the first tables is divided among a group of ranks."""
    groups = [(0.0, index, 0.0) for index in range(ranks // group)]
    for each in ordered[:divided]:
        load, index, held = groups[0]
        part = each.table_bytes / group
        heapq.heapreplace(groups, (load + part + each.exchange_bytes, index, held + part))
    loads = [(load, index * group + place, held) for load, index, held in groups for place in range(group)]
    heapq.heapify(loads)
    for each in ordered[divided:]:
        load, index, held = loads[0]
        heapq.heapreplace(loads, (load + each.all_bytes, index, held + each.table_bytes))
    return loads

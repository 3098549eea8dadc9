"""Where tables are placed: the fullest rank of whole, divided and replicated tables."""

from __future__ import annotations

import pytest

from cloudrec.planning.fit.placement import TableNeed, fullest_rank, table_places


def _tables(*sizes: float, exchange: float = 0.0) -> tuple[TableNeed, ...]:
    return tuple(TableNeed(table_bytes=size, exchange_bytes=exchange) for size in sizes)


def test_one_rank_has_all_tables() -> None:
    assert fullest_rank(_tables(3, 1, exchange=1), 1, 1) == TableNeed(4, 2)


def test_a_table_that_is_larger_than_the_others_is_divided() -> None:
    assert fullest_rank(_tables(8, 1, 1, 1, 1), 4, 4).table_bytes == 3
    assert fullest_rank(_tables(8, 1, 1, 1, 1), 4, 4, "whole").table_bytes == 8


def test_dividing_multiplies_what_look_ups_write_so_that_equal_tables_stay_whole() -> None:
    assert fullest_rank(_tables(*[10] * 8, exchange=2), 4, 4) == TableNeed(20, 4)
    assert fullest_rank(_tables(*[10] * 8, exchange=2), 4, 4, "divided") == TableNeed(20, 16)


def test_a_table_is_divided_within_a_machine_if_that_is_enough() -> None:
    two_machines = fullest_rank(_tables(8, 8, exchange=1), 8, 4)
    assert two_machines == TableNeed(2, 1)
    assert fullest_rank(_tables(8, 8, exchange=1), 8, 8) == TableNeed(2, 2)


def test_replicated_tables_are_on_every_rank_and_their_look_ups_are_shared() -> None:
    assert fullest_rank(_tables(3, 1, exchange=4), 4, 4, "replicated") == TableNeed(4, 2)


@pytest.mark.parametrize("count", [33, 200])
def test_many_tables_fill_ranks_evenly(count: int) -> None:
    sizes = [1.0 + (number * 7919 % 100) / 10 for number in range(count)]
    whole = sum(sizes) / 8
    assert fullest_rank(_tables(*sizes), 8, 8).table_bytes < whole * 1.02


def test_the_places_are_those_of_the_fullest_rank() -> None:
    tables = _tables(1, 8, 1, 1, 1)
    found = table_places(tables, 4, 4)
    assert (found.divided, found.group) == (frozenset({1}), 4)
    assert found.rank_bytes == (3, 3, 3, 3)
    uneven = table_places(_tables(5, 3, 1), 2, 2, "whole")
    assert (uneven.divided, sorted(uneven.rank_bytes)) == (frozenset(), [4, 5])
    sizes = [1.0 + (number * 7919 % 100) / 10 for number in range(60)]
    many = table_places(_tables(*sizes), 8, 8)
    assert max(many.rank_bytes) == fullest_rank(_tables(*sizes), 8, 8).table_bytes
    assert sum(many.rank_bytes) == pytest.approx(sum(sizes))
    assert table_places(_tables(3, 1), 4, 4, "replicated").rank_bytes == (4, 4, 4, 4)

"""Total costs with unknown prices."""

from __future__ import annotations

import pytest

from cloudrec.engine.cost import Cost, Item, times, total

KNOWN, FREE, UNKNOWN = (Item(name="a"), 1.5), (Item(name="b"), 0.0), (Item(name="c", node_type="big"), None)


@pytest.mark.parametrize(
    ("prices", "usd", "text", "cell"),
    [
        ([], 0.0, "$0.00/h", "$0.00"),
        ([KNOWN, FREE, KNOWN], 3.0, "$3.00/h", "$3.00"),
        ([KNOWN, UNKNOWN], None, "$1.50/h + unknown: c (big)", "$1.50 + unknown"),
        ([FREE, UNKNOWN, UNKNOWN], None, "unknown: c (big)", "unknown"),
    ],
)
def test_a_sum_with_an_unknown_price_is_unknown_and_names_it(
    prices: list[tuple[Item, float | None]], usd: float | None, text: str, cell: str
) -> None:
    cost = Cost.of(prices)
    assert (cost.usd, cost.text, cost.cell) == (usd, text, cell)
    assert cost.to_json()["hourly_usd"] == usd


def test_json_has_the_known_cost_and_the_names_of_unpriced_resources() -> None:
    assert Cost.of([KNOWN, UNKNOWN]).to_json() == {
        "hourly_usd": None,
        "known_hourly_usd": 1.5,
        "unknown_prices": ["c (big)"],
    }


def test_a_line_names_the_first_of_many_unpriced_resources() -> None:
    many = Cost(unknown=tuple(Item(name=f"n{number}") for number in range(40)))
    assert many.text == "unknown: n0, n1, n2, n3, n4, 35 more"


def test_one_unknown_part_makes_the_price_unknown() -> None:
    assert total(1.0, 2.0) == 3.0
    assert total(1.0, None) is None
    assert (times(3, 2.0), times(3, None), times(0, None)) == (6.0, None, 0.0)

"""Kubernetes quantities as numbers."""

from __future__ import annotations

import pytest

from cloudrec.kubernetes.quantities import amount


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8),
        (8, 8),
        ("5120Mi", 5 * 2**30),
        ("1Pi", 2**50),
        ("100m", 0.1),
        ("2k", 2000),
        ("1e3", 1000),
        ("", 0),
        ("x", 0),
    ],
)
def test_a_quantity_is_parsed_as_a_number(text: object, number: float) -> None:
    assert amount(text) == pytest.approx(number)

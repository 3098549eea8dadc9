"""Capacity traces: their format and their errors."""

from __future__ import annotations

import re

import pytest

from cloudrec.planning.spot.traces import NodeCounts

TEXT = '{"metadata": {"gap_seconds": 600}, "data": [1, 1, 0, 0, 0, 1]}'


def test_a_trace_is_read_from_the_public_format() -> None:
    trace = NodeCounts.of("us-east-1a_v100", TEXT).trace(1)
    assert trace.length_s == 3600
    assert trace.share == 0.5
    assert [trace.is_up(at) for at in (0, 1199, 1200, 2999, 3000, 99_999)] == [
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    assert [trace.changes_at(at) for at in (0, 1199, 1200, 3000)] == [1200, 1200, 3000, 3600]
    assert trace.up_times(3600) == [1200, 600]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value"),
        ("[]", "not an object"),
        ("{}", "metadata"),
        ('{"metadata": {"gap_seconds": 600}}', "data"),
        ('{"metadata": {"gap_seconds": "x"}, "data": [1, 0]}', "could not convert"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1, 0]}', "gap_seconds is 0"),
        ('{"metadata": {"gap_seconds": NaN}, "data": [1, 0]}', "NaN is not finite"),
        ('{"metadata": {"gap_seconds": 600}, "data": [1]}', "at least 2"),
        ('{"metadata": {"gap_seconds": 600}, "data": [1, -2]}', "the value -2"),
        ('{"metadata": {"gap_seconds": 600}, "data": [1, 1000001]}', "the value 1000001"),
        ('{"metadata": {"gap_seconds": 600}, "data": [1, 0.0]}', "the value 0.0"),
        ('{"metadata": {"gap_seconds": 600}, "data": [1, [0]]}', "the value [0]"),
        ("[" * 100_000, "deep"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        NodeCounts.of("a", text)

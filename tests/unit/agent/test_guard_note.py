"""The guard's note, which an image of an earlier version must be able to read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from cloudrec.keeper.guard import GuardRecord
from cloudrec.keeper.note import Note
from cloudrec.spec.models import ClusterSpec


def test_the_note_omits_whether_the_cluster_is_private() -> None:
    cluster = ClusterSpec(name="c", provider="aws", access="private", expires="2026-11-21T13:00:00Z")
    text = Note(cluster=cluster).to_json()
    assert "access" not in json.loads(text)["cluster"]
    assert Note.of(text).end() == Note(cluster=cluster).end()


@pytest.mark.parametrize(
    ("ended_min", "budget", "is_settling"),
    [
        (0, 100.0, True),  # the same end, as that of the clock
        (2, 100.0, True),  # the end of a budget that is spent is the time of each round
        (6, 100.0, False),
        (2, 200.0, False),  # a renewed budget that is spent again
    ],
)
def test_pools_are_not_scaled_again_for_five_minutes(
    ended_min: float, budget: float, *, is_settling: bool
) -> None:
    began = datetime(2026, 11, 29, 12, tzinfo=UTC)
    record = GuardRecord(
        end=began.isoformat(), budget_usd=100.0, halted=True, at=began.isoformat(), pools=("gpu",)
    )
    note = Note(cluster=ClusterSpec(name="c", provider="gcp", budget_usd=budget))
    now = began + timedelta(minutes=max(ended_min, 1))
    assert record.has_just_scaled(note, began + timedelta(minutes=ended_min), now) == is_settling


def test_a_record_with_a_damaged_end_is_an_empty_one() -> None:
    text = json.dumps({"end": "soon", "at": "2026-11-29T12:00:00Z", "halted": True, "pools": ["gpu"]})
    assert GuardRecord.of(text) == GuardRecord()

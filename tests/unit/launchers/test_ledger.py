"""The ledger skips lines that a crash truncated."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from cloudrec.errors import StorageError
from cloudrec.launchers.base import ledger as module
from cloudrec.launchers.base.ledger import Ledger, RunState, last_launch, state_after
from cloudrec.launchers.base.verdict import exits_of, last_attempt

if TYPE_CHECKING:
    from pathlib import Path


def test_appended_events_are_read_in_order(tmp_path: Path) -> None:
    ledger = Ledger(path=tmp_path / "events.jsonl")
    assert ledger.read() == []
    ledger.append("submitted", launch=1, launcher="local")
    ledger.append("started", launch=1, pid=7)
    events = ledger.read()
    assert [(e.event, e.launch, dict(e.details)) for e in events] == [
        ("submitted", 1, {"launcher": "local"}),
        ("started", 1, {"pid": 7}),
    ]
    assert events[0].time <= events[1].time
    assert last_launch(events) == 1
    assert state_after(events) is RunState.RUNNING


def test_a_line_truncated_by_a_crash_is_skipped_alone(tmp_path: Path) -> None:
    ledger = Ledger(path=tmp_path / "events.jsonl")
    ledger.append("submitted", launch=1)
    with ledger.path.open("ab") as file:
        file.write(b'{"time": 1.0, "event": "sta')
    ledger.append("failed", launch=1, cause="x")
    assert [event.event for event in ledger.read()] == ["submitted", "failed"]


def test_lines_that_are_not_events_are_skipped(tmp_path: Path) -> None:
    ledger = Ledger(path=tmp_path / "events.jsonl")
    ledger.path.write_bytes(b'\xff\xfe\n[]\n3\nnull\n{"time": "x"}\n{"event": "a", "launch": 1}\n\n')
    ledger.append("started", launch=1)
    assert [event.event for event in ledger.read()] == ["started"]


def test_a_number_that_is_null_is_absent_and_an_end_without_rank_or_code_is_no_exit(tmp_path: Path) -> None:
    lines = [
        {"time": 1, "event": "rank_started", "launch": 1, "attempt": None, "rank": 0, "pid": 7},
        {"time": 2, "event": "rank_ended", "launch": 1, "attempt": 0, "rank": None, "exit_code": 1},
        {"time": 3, "event": "rank_ended", "launch": 1, "attempt": 0, "rank": 0, "exit_code": None},
        {"time": 4, "event": "rank_ended", "launch": 1, "attempt": 0, "rank": 1, "exit_code": 3},
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    events = Ledger(path=path).read()
    assert [event.time for event in events] == [1, 2, 3, 4]
    assert last_attempt(events, launch=1) == 0
    assert [each.rank for each in exits_of(events, launch=1, attempt=0)] == [1]


def test_lines_of_concurrent_writers_are_not_interleaved(tmp_path: Path) -> None:
    ledger = Ledger(path=tmp_path / "events.jsonl")
    with ThreadPoolExecutor(8) as pool:
        for number in range(200):
            pool.submit(ledger.append, "rank_started", launch=1, number=number, filler="x" * 300)
    assert sorted(event.details["number"] for event in ledger.read()) == list(range(200))


def test_a_full_disk_is_reported_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    with pytest.raises(StorageError, match="No space left on device") as refused:
        Ledger(path=tmp_path / "events.jsonl").append("started", launch=1)
    assert "free some space" in (refused.value.remedy or "")


def test_a_run_without_events_is_pending() -> None:
    assert state_after([]) is RunState.PENDING


def test_lines_that_were_read_are_not_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(path=tmp_path / "events.jsonl")
    for number in range(500):
        ledger.append("rank_started", launch=1, number=number)
    assert len(ledger.read()) == 500
    parsed: list[str] = []
    parse = module._parse

    def counted(line: str) -> module.LedgerEvent | None:
        parsed.append(line)
        return parse(line)

    monkeypatch.setattr(module, "_parse", counted)
    ledger.append("failed", launch=1)
    with ledger.path.open("ab") as file:
        file.write(b'{"time": 1.0, "event": "torn')
    for _ in range(3):
        assert [event.event for event in Ledger(path=ledger.path).read()[-2:]] == ["rank_started", "failed"]
    assert len(parsed) == 1 + 3  # the new line once, and the torn one each time


@pytest.mark.parametrize("how", ["shorter", "longer", "replaced"])
def test_a_ledger_that_was_replaced_is_read_whole(tmp_path: Path, how: str) -> None:
    ledger = Ledger(path=tmp_path / "events.jsonl")
    for number in range(20):
        ledger.append("rank_started", launch=1, number=number)
    assert len(ledger.read()) == 20
    line = '{"time": 5.0, "event": "submitted", "launch": 2}\n'
    if how == "replaced":
        ledger.path.unlink()
    ledger.path.write_text(line * (1 if how == "shorter" else 100))
    assert {event.event for event in ledger.read()} == {"submitted"}


def test_a_caller_may_change_the_list_of_events(tmp_path: Path) -> None:
    ledger = Ledger(path=tmp_path / "events.jsonl")
    ledger.append("submitted", launch=1)
    ledger.read().clear()
    assert len(ledger.read()) == 1


def test_an_outline_parses_few_lines_of_ranks_and_has_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(path=tmp_path / "events.jsonl")
    ledger.append("submitted", launch=1)
    for attempt in range(3):
        for event in ("rank_started", "rank_ended"):
            for rank in range(100):
                ledger.append(event, launch=1, attempt=attempt, rank=rank, pid=1, exit_code=-9)
        ledger.append("restarting", launch=1, attempt=attempt + 1)
    ledger.append("rank_started", launch=1, attempt=3, rank=0, pid=1)
    everything = ledger.read()
    parsed: list[str] = []
    parse = module._parse

    def counted(line: str) -> module.LedgerEvent | None:
        parsed.append(line)
        return parse(line)

    monkeypatch.setattr(module, "_parse", counted)
    outline = ledger.outline()
    assert len(parsed) == 1 + 3 + 3 + 1
    assert outline == [event for event in everything if event in outline]
    assert last_attempt(outline, launch=1) == last_attempt(everything, launch=1) == 3
    assert (outline[0], outline[-1]) == (everything[0], everything[-1])
    others = [event for event in everything if not event.event.startswith("rank_")]
    assert [event for event in outline if not event.event.startswith("rank_")] == others
    ledger.append("failed", launch=1)
    assert ledger.outline()[-1].event == "failed"
    assert len(parsed) == 1 + 3 + 3 + 1 + 1


def test_a_reader_takes_only_what_was_appended_from_the_file(tmp_path: Path) -> None:
    ledger = Ledger(path=tmp_path / "events.jsonl")
    for number in range(2000):
        ledger.append("rank_started", launch=1, attempt=0, rank=number)
    for read in (ledger.read, ledger.outline):
        read()
        ledger.append("running", launch=1)
        before = _bytes_read()
        assert read()[-1].event == "running"
        assert _bytes_read() - before < 2000 < ledger.path.stat().st_size / 50


def _bytes_read() -> int:
    """Return the bytes that this process has read, as the kernel counts them."""
    with open("/proc/self/io", "rb", buffering=0) as file:  # noqa: PTH123 - no buffer
        return int(file.read(64).split()[1])

"""Logs: reading from the start, tailing and following."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cloudrec.errors import DataError, UsageError
from cloudrec.launchers.base.follow import follow_lines
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.observe.logs import read_logs
from cloudrec.observe.status import watch_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return create_run(tmp_path, RunSpec(name="one", nproc_per_node=2))


def _over_after(*writes: Callable[[], object]) -> Callable[[], bool]:
    """Return an `is_over` that performs one more write at each call, then returns true."""
    left = iter(writes)

    def is_over() -> bool:
        write = next(left, None)
        if write is None:
            return True
        write()
        return False

    return is_over


def test_a_log_is_read_with_its_unfinished_last_line(run: RunFolder) -> None:
    run.rank_log(1).write_bytes(b"first\r\n\nl\xe4st")
    assert list(read_logs(run, rank=1)) == ["first", "", "l�st"]


@pytest.mark.parametrize(("tail", "lines"), [(0, []), (1, ["c"]), (2, ["b", "c"]), (9, ["a", "b", "c"])])
def test_a_tail_starts_with_the_last_lines(run: RunFolder, tail: int, lines: list[str]) -> None:
    run.rank_log(0).write_text("a\nb\nc\n")
    assert list(read_logs(run, tail=tail)) == lines


def test_lines_that_cannot_be_read_are_an_error_and_not_the_end_of_the_run(run: RunFolder) -> None:
    run.rank_log(0).mkdir(parents=True)
    with pytest.raises(DataError, match="cannot read"):
        list(watch_run(run, tail=0))


def test_a_missing_log_has_no_lines(run: RunFolder) -> None:
    assert list(read_logs(run)) == []
    assert list(read_logs(run, tail=3, follow=True)) == []  # no live process can write it


@pytest.mark.parametrize("rank", [-1, 2])
def test_an_unknown_rank_is_refused_with_the_existing_ranks(run: RunFolder, rank: int) -> None:
    with pytest.raises(UsageError, match=f"no rank {rank}") as refused:
        read_logs(run, rank=rank)
    assert refused.value.remedy == "it has ranks 0 to 1"


def test_a_negative_tail_is_refused(run: RunFolder) -> None:
    with pytest.raises(UsageError, match="--tail is -1"):
        read_logs(run, tail=-1)


def test_following_waits_for_the_file_and_yields_complete_lines_to_the_end(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"

    def append(text: str) -> Callable[[], object]:
        def write() -> None:
            with log.open("a") as file:
                file.write(text)

        return write

    over = _over_after(lambda: None, append("one\ntw"), append("o\n"), append("three\n"))
    assert list(follow_lines(log, tail=None, is_over=over, poll_s=0.0)) == ["one", "two", "three"]


def test_a_log_longer_than_a_block_is_read_completely(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    lines = [f"{number} " + "x" * 200 for number in range(2000)]
    log.write_text("\n".join(lines) + "\n")
    assert list(follow_lines(log, tail=None, is_over=lambda: True, poll_s=0.0)) == lines
    for tail in (0, 1, 318, 319, 1500, 2000, 3000):
        found = list(follow_lines(log, tail=tail, is_over=lambda: True, poll_s=0.0))
        assert found == lines[len(lines) - min(tail, len(lines)) :]


def test_a_tail_counts_an_unfinished_last_line(run: RunFolder) -> None:
    run.rank_log(0).write_text("a\nb\nc")
    assert list(read_logs(run, tail=2)) == ["b", "c"]

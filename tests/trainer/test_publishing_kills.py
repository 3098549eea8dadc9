"""A publisher that is killed at any write, and two at once: readers always have a complete version."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.trainer.support_publishing import (
    applied,
    exported,
    publishing,
    steps_of,
    write_zipf,
)
from tests.trainer.support_runs import run_here
from trainer.serving.publication.reader import PublicationReader

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

_MODULES = ["trainer.publishing.follow", "trainer.publishing.publisher", "tests.trainer.support_publishing"]
_WRITES = {"os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir"}
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(_MODULES)  # torch is imported once


def _publish_and_die(checkpoints: str, out: str, words: list[str], at: int) -> None:
    """Publish, and die right before the write of this number below a folder; exit with 7 if it has fewer."""
    seen = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if (
            event in _WRITES
            and isinstance(arguments[0], str | os.PathLike)
            and str(arguments[0]).startswith(out)
        ):
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    sys.addaudithook(count)
    publishing(checkpoints, out, *words)
    os._exit(7)


def _publish(checkpoints: str, out: str, words: list[str], both_commit: Barrier) -> None:
    """Publish, but give the manifest its name only when the other publisher is about to do so, too."""
    from tests.trainer.support_publishing import command  # noqa: PLC0415 - of the other process
    from trainer.commands import publish  # noqa: PLC0415 - likewise

    has_met = False

    def meet(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal has_met
        if not has_met and event == "os.link" and str(arguments[1]).startswith(out):
            has_met = True
            both_commit.wait(60)

    sys.addaudithook(meet)
    code, printed, problem = command(publish.main, "--checkpoint", checkpoints, "--out", out, *words)
    Path(out).parent.joinpath(f"said-{os.getpid()}").write_text(f"{code}\n{printed}{problem}")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    settings = {"checkpoint_interval": 10, "keep_checkpoints": 50, "num_iterations": 50}
    assert run_here(write_zipf(folder / "data"), folder / "run", **settings).code == 0
    return folder / "run" / "checkpoints"


@pytest.mark.parametrize(
    "every", [pytest.param(1, marks=pytest.mark.soak, id="each write"), pytest.param(3, id="every third")]
)
@pytest.mark.parametrize(
    ("before", "words"),
    [(0, []), (2, []), (2, ["--full", "--keep", "1"])],
    ids=["base", "delta", "full, keep"],
)
def test_a_publisher_that_is_killed_at_a_write_harms_no_reader(
    checkpoints: Path, tmp_path: Path, before: int, words: list[str], every: int
) -> None:
    steps = steps_of(checkpoints)
    start = tmp_path / "start"
    for step in steps[:before]:
        publishing(checkpoints, start, "--step", step)
    expected = {
        step: exported(checkpoints, tmp_path / f"export-{step}", "fp32", step)
        for step in (*steps[:before], steps[before], steps[before + 1])
    }
    codes, kills = [], 0
    while 7 not in codes:
        out = tmp_path / f"out-{kills}"
        if before:
            shutil.copytree(start, out)
        given = [*words, "--step", str(steps[before])]
        process = FORKS.Process(target=_publish_and_die, args=(str(checkpoints), str(out), given, kills))
        process.start()
        process.join(60)
        codes.append(process.exitcode)
        numbers = PublicationReader(str(out)).versions.numbers()
        assert numbers or not before
        for number in numbers[-1:]:  # what a reader finds is whole
            step = PublicationReader(str(out)).versions.manifest(number).step
            assert applied(out, tmp_path / f"seen-{kills}", number) == expected[step]
        report = publishing(checkpoints, out, "--step", steps[before + 1], *words)
        assert report["is_new"]
        assert applied(out, tmp_path / f"next-{kills}") == expected[steps[before + 1]]
        _nothing_is_left_over(out)
        kills += every
    assert set(codes) == {-signal.SIGKILL, 7}
    assert kills > 8


def _nothing_is_left_over(out: Path) -> None:
    """No file that no version names, and no temporary one."""
    reader = PublicationReader(str(out))
    named = {
        name for number in reader.versions.numbers() for name in reader.versions.manifest(number).objects
    }
    there = {path.relative_to(out).as_posix() for path in (out / "data").rglob("*") if path.is_file()}
    assert there == named
    assert not list((out / ".tmp").glob("*"))


def test_of_two_publishers_at_once_one_wins_and_the_other_says_so(checkpoints: Path, tmp_path: Path) -> None:
    steps = steps_of(checkpoints)
    out = tmp_path / "out"
    publishing(checkpoints, out, "--step", steps[0])
    for turn in range(3):
        given = [["--step", str(steps[1 + (turn + each) % 2]), "--full"] for each in range(2)]
        both_commit = FORKS.Barrier(2)
        both = [
            FORKS.Process(target=_publish, args=(str(checkpoints), str(out), words, both_commit))
            for words in given
        ]
        for process in both:
            process.start()
        for process in both:
            process.join(60)
        said = [path.read_text() for path in tmp_path.glob("said-*")]
        for path in tmp_path.glob("said-*"):
            path.unlink()
        winner, loser = sorted(said)  # by exit code
        assert winner.startswith("0\n")
        assert loser.startswith("1\n"), loser
        assert "another publisher wrote version" in loser
        newest = PublicationReader(str(out)).versions.numbers()[-1]
        step = PublicationReader(str(out)).versions.manifest(newest).step
        applied_now = applied(out, tmp_path / f"applied-{turn}")
        assert applied_now == exported(checkpoints, tmp_path / f"export-{turn}", "fp32", step)
    publishing(checkpoints, out, "--step", steps[3])
    _nothing_is_left_over(out)

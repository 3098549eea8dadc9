"""Answers of clouds with wrong content: commands in this process, on a cloud's stand-in behind a proxy.

    python -m tests.fuzz.answers aws --rounds 10 --seed 7

A round creates a cluster while some answers are wrong, looks at it with other commands, and removes it. Then
the answers are right again, `down` is repeated as a user would, and nothing may be left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cloudrec.cli import output
from cloudrec.cli.main import run
from tests.e2e.support_wire import CODES, WIRES, Account, account
from tests.fuzz.world import HangError, captured, place_of

LIMIT_S = 60.0
_TRIES = 6
_LOOKS: Sequence[tuple[str, ...]] = (
    ("status",),
    ("leaks", "{}"),
    ("up", "{}", "--cluster", "wire", "--dry-run"),
    ("cost",),
    ("doctor", "{}"),
    ("doctor", "{}", "--cluster", "wire"),
    ("catalog", "{}"),
    ("access", "--cluster", "wire"),
    ("down", "--cluster", "wire", "--dry-run"),
)
_PERCENT = (2, 10, 40)  # of answers that are wrong


@dataclass(kw_only=True)
class Answered:
    """What commands did with wrong answers.

    Attributes:
        commands: how many ran.
        answers: how many answers had wrong content.
        codes: how often each exit code was seen.
        faults: what they must not do: kind and place -> how often.
        first: of each fault, the seed and the command.
    """

    commands: int = 0
    answers: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    first: dict[tuple[str, str], str] = field(default_factory=dict)
    slowest: float = 0.0

    def add(self, kind: str, place: str, what: str) -> None:
        """Count a fault."""
        self.faults[kind, place] += 1
        self.first.setdefault((kind, place), what)

    def summary(self) -> str:
        """Return a line with the counts."""
        codes = ", ".join(f"{code}: {count}" for code, count in sorted(self.codes.items()))
        return (
            f"{self.answers:,} wrong answers in {self.commands:,} commands, {self.faults.total()} faults, "
            f"the slowest {self.slowest:.0f} s, exit codes {{{codes}}}"
        )


class AnswersWorld:
    """Runs commands in this process, on one cloud's stand-in."""

    def __init__(self, cloud: Account) -> None:
        self.cloud, self.proxy = cloud, cloud.proxy
        self.done = Answered()
        self.said = ""  # by the last command
        signal.signal(signal.SIGALRM, _hang)

    def look(self, seed: int) -> None:
        """Look at a cloud without a cluster while answers are wrong."""
        before = len(self.proxy.struck)
        self.proxy.begin(seed, _PERCENT[-1])
        for words in _LOOKS:
            if "--cluster" not in words:
                self.run(seed, *(word.format(self.cloud.provider) for word in words))
        self.done.answers += len(self.proxy.struck) - before

    def round(self, seed: int) -> None:
        """Create, look at and remove a cluster while answers are wrong; then remove what is left."""
        provider, percent = self.cloud.provider, _PERCENT[seed % len(_PERCENT)]
        few, before = min(percent, _PERCENT[1]), len(self.proxy.struck)
        self.proxy.begin(seed, few)
        self.run(seed, *self.cloud.up)
        self.proxy.percent = percent
        for words in _LOOKS:
            self.run(seed, *(word.format(provider) for word in words))
        self.proxy.percent = few
        self.run(seed, *self.cloud.up)
        self.run(seed, *self.cloud.down)
        self.proxy.percent = 0.0
        self.done.answers += len(self.proxy.struck) - before
        self._remove(seed)

    def run(self, seed: int, *words: str) -> int:
        """Run a command and judge it; return its exit code."""
        environment = self.cloud.environment
        problem, code = "", 0
        with _within(environment), captured() as streams:
            signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
            begun = time.monotonic()
            try:
                code = run(list(words))
            except HangError:
                problem = "hang"
            except (Exception, SystemExit):  # noqa: BLE001 - this is what the test looks for
                problem = traceback.format_exc()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                took = time.monotonic() - begun
        self.said = streams[0][-600:] + streams[1][-600:]
        what = f"seed {seed}: {' '.join(words)}: {streams[1][-400:]}"
        self.done.commands += 1
        self.done.codes[code] += 1
        self.done.slowest = max(self.done.slowest, took)
        if "a bug in cloudrec" in streams[1]:
            crashes = sorted(Path(environment["CLOUDREC_HOME"]).glob("crashes/*.log"))
            problem = crashes[-1].read_text(encoding="utf-8") if crashes else streams[1]
        if problem == "hang":
            self.done.add("slow", words[0], what)
        elif problem:
            self.done.add("traceback", place_of(problem), f"{what}\n{problem[-1500:]}")
        if code not in CODES:
            self.done.add("code", str(code), what)
        return code

    def _remove(self, seed: int) -> None:
        for _ in range(_TRIES):
            if self.run(seed, *self.cloud.down) == 0:
                break
        else:
            self.done.add("left", "`down` does not end", f"seed {seed}: {self.said}")
        if (left := self.cloud.existing()) != self.cloud.before:
            self.done.add("left", ", ".join(name[-120:] for name in left)[:400], f"seed {seed}")


@contextlib.contextmanager
def _within(environment: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    output.choose_format("table")
    output._held.clear()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def answers_world(provider: str, folder: Path) -> Iterator[AnswersWorld]:
    """Run a cloud's stand-in and a proxy in front of it for as long as a block lasts."""
    with account(provider, folder, kinds=("change",)) as cloud:
        yield AnswersWorld(cloud)


def _hang(_number: int, _frame: object) -> None:
    raise HangError


def main(argv: Sequence[str] | None = None) -> int:
    """Run rounds, print what was found, and return the exit code of the process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("provider", choices=sorted(WIRES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next one has the next")
    parser.add_argument("--looks", action="store_true", help="make no cluster: a round takes seconds")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no round after this time")
    arguments = parser.parse_args(argv)
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as folder,
        answers_world(arguments.provider, Path(folder)) as world,
    ):
        for number in range(arguments.rounds):
            if time.monotonic() - begun > arguments.minutes * 60:
                break
            (world.look if arguments.looks else world.round)(arguments.seed + number)
    for fault, count in world.done.faults.items():
        print(f"{fault[0]} ({count} times): {fault[1]}\n  {world.done.first[fault]}")
    print(f"{arguments.provider}, from seed {arguments.seed}: {world.done.summary()}")
    return 1 if world.done.faults else 0


if __name__ == "__main__":
    sys.exit(main())

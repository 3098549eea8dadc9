"""Batches of inputs: made from a number alone, and judged in this process or in several."""

from __future__ import annotations

import itertools
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.fuzz.areas import AREAS
from tests.fuzz.inputs import BadInput
from tests.fuzz.world import Fault, World

BATCH = 100
_QUIET = {
    "deadline": None,
    "database": None,
    "phases": [Phase.generate],
    "suppress_health_check": list(HealthCheck),
}
_NO_CONSTANTS = Constants()
# Hypothesis mixes in constants of the modules that are imported, so that a batch would depend on the inputs
# before it; reading them also takes a third of the time.
providers._get_local_constants = lambda: _NO_CONSTANTS
_worlds: list[World] = []  # of this process


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a batch did.

    Attributes:
        number: the batch; the same number gives the same inputs.
        counts: inputs by area.
        faults: what they must not do.
        slowest: the time of the slowest one, in seconds.
    """

    number: int
    counts: Counter[str] = field(default_factory=Counter)
    faults: Sequence[Fault] = ()
    slowest: float = 0.0


def inputs(number: int, areas: Sequence[str] = (), size: int = BATCH) -> list[BadInput]:
    """Return a batch of inputs; the same number gives the same inputs."""
    found: list[BadInput] = []
    weighted = [AREAS[name][0]() for name in areas or AREAS for _ in range(1 if areas else AREAS[name][1])]

    @seed(number)
    @settings(max_examples=size, **_QUIET)  # type: ignore[arg-type] # of different types
    @given(st.one_of(weighted))
    def collect(each: BadInput) -> None:
        found.append(each)

    collect()
    return found


def begin(folder: Path) -> None:
    """Make the folder in which this process judges."""
    _worlds.append(World(Path(tempfile.mkdtemp(dir=folder))))


def judge(number: int, areas: Sequence[str]) -> Judged:
    """Make a batch and judge each of its inputs."""
    world, counts, faults, slowest = _worlds[-1], Counter[str](), list[Fault](), 0.0
    world.renew()
    for each in inputs(number, areas):
        started = time.monotonic()
        faults += world.judge(each)
        slowest = max(slowest, time.monotonic() - started)
        counts[each.area] += 1
    return Judged(number=number, counts=counts, faults=faults, slowest=slowest)


def judged(first: int, areas: Sequence[str], workers: int, folder: Path) -> Generator[Judged, None, None]:
    """Yield batches from the first number on, without end, as processes finish them."""
    numbers = itertools.count(first)
    if workers == 1:
        begin(folder)
        for number in numbers:
            yield judge(number, areas)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, initializer=begin, initargs=(folder,)) as pool:
        running: set[Future[Judged]] = set()
        try:
            while True:
                while len(running) < workers:
                    running.add(pool.submit(judge, next(numbers), areas))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        finally:
            pool.shutdown(cancel_futures=True)

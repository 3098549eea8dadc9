"""Real ranks for tests: processes that stay, joined by gloo on loopback, to which functions are sent.

Starting a process that imports torch takes seconds. All tests therefore share one set of ranks, and a
test of two ranks uses the first two of three.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from pathlib import Path
    from types import TracebackType
    from typing import Self

# Limits that only a hang reaches: other processes may keep every core busy for minutes.
_START_S = 300.0
_ANSWER_S = 400.0
_GROUP_TIMEOUT_S = 300  # of gloo's collectives: below the limit above, so that the rank itself reports it
_AFTER_FAILURE_S = 10.0  # for the other ranks: they may wait in a collective for the rank that failed


@dataclass(frozen=True, slots=True)
class Place:
    """The rank of a function's call, and the number of ranks."""

    rank: int
    world_size: int
    group: Any  # the process group of those ranks


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer of a rank: the number of the call, and the result or the failure's text."""

    call: int
    result: Any
    failure: str | None = None


@dataclass(slots=True)
class _Rank:
    process: SpawnProcess
    connection: Connection
    stacks: Path  # where the process writes its stacks on SIGUSR2
    has_started: bool = False


class RankPool:
    """Runs functions of test modules on ranks; use it as a context.

    Calls are numbered, and an answer counts only for the call that it names. After a call that one rank
    has not answered, the processes are replaced: they may still run that call, or wait for one another.

    Attributes:
        answer_s: how long a call may take.
    """

    def __init__(self, size: int, folder: Path, *, answer_s: float = _ANSWER_S) -> None:
        self.answer_s = answer_s
        self._size = size
        self._folder = folder
        self._calls = 0
        self._generation = 0
        self._ranks: list[_Rank] = []
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def run(self, world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call `function(place, *arguments)` on ranks 0 to `world_size` - 1; the results, by rank.

        Raises:
            AssertionError: a rank failed, died or did not answer in time.
        """
        if not self._ranks:
            self._start()
        self._await_start()
        self._calls += 1
        ranks = self._ranks[:world_size]
        for rank in ranks:
            rank.connection.send((self._calls, world_size, function, arguments))
        answers, reasons = self._gather(ranks)
        if reasons:
            self._kill()  # the next call starts other processes
        failures = reasons | {
            number: answer.failure for number, answer in answers.items() if answer.failure is not None
        }
        if failures:
            raise AssertionError(
                "\n".join(f"rank {number}: {failures[number]}" for number in sorted(failures))
            )
        return [answers[number].result for number in range(world_size)]

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._generation += 1
        rendezvous = f"file://{self._folder}/rendezvous-{self._generation}"
        for number in range(self._size):
            here, there = context.Pipe()
            stacks = self._folder / f"stacks-{number}"
            process = context.Process(
                target=_serve, args=(number, self._size, rendezvous, there, stacks), daemon=True
            )
            process.start()
            there.close()
            self._ranks.append(_Rank(process, here, stacks))

    def _await_start(self) -> None:
        give_up = time.monotonic() + _START_S
        for rank in self._ranks:
            if not rank.has_started:
                if not rank.connection.poll(max(0.0, give_up - time.monotonic())):
                    self._kill()
                    raise AssertionError(f"the ranks did not start within {_START_S:g} s")
                rank.connection.recv()
                rank.has_started = True

    def _kill(self) -> None:
        for rank in self._ranks:
            rank.process.kill()  # an orderly end takes seconds
            rank.process.join()
            rank.connection.close()
        self._ranks.clear()

    def _gather(self, ranks: list[_Rank]) -> tuple[dict[int, _Answer], dict[int, str]]:
        """Return the answers by rank, and why there is none of the other ranks."""
        answers: dict[int, _Answer] = {}
        reasons: dict[int, str] = {}
        waiting = {rank.connection: number for number, rank in enumerate(ranks)}
        give_up = time.monotonic() + self.answer_s
        while waiting:
            ready = wait(list(waiting), max(0.0, give_up - time.monotonic()))
            if not ready:
                break
            for connection in cast("list[Connection]", ready):
                try:
                    answer: _Answer = connection.recv()
                except EOFError:
                    reasons[waiting.pop(connection)] = "its process died"
                    continue
                if answer.call == self._calls:
                    answers[waiting.pop(connection)] = answer
            if reasons or any(answer.failure for answer in answers.values()):
                give_up = min(give_up, time.monotonic() + _AFTER_FAILURE_S)
        for number in waiting.values():
            reasons[number] = f"did not answer in time:\n{_stacks_of(ranks[number])}"
        return answers, reasons


def _stacks_of(rank: _Rank) -> str:
    """Make a rank write the stacks of its threads."""
    os.kill(rank.process.pid or 0, signal.SIGUSR2)
    time.sleep(0.5)
    return rank.stacks.read_text(encoding="utf-8")


def _serve(rank: int, size: int, rendezvous: str, connection: Connection, stacks: Path) -> None:
    faulthandler.register(signal.SIGUSR2, file=stacks.open("w", encoding="utf-8"), all_threads=True)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ.pop("LOCAL_WORLD_SIZE", None)  # a run in the tests' own process leaves its own behind
    torch.set_num_threads(1)
    timeout = timedelta(seconds=_GROUP_TIMEOUT_S)
    distributed.init_process_group(
        "gloo", init_method=rendezvous, rank=rank, world_size=size, timeout=timeout
    )
    groups = {count: distributed.new_group(list(range(count))) for count in range(1, size + 1)}
    connection.send("started")
    while True:
        try:
            call, world_size, function, arguments = connection.recv()
        except EOFError:  # the pool was closed
            break
        try:
            result = function(Place(rank, world_size, groups[world_size]), *arguments)
            connection.send(_Answer(call, result))
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  # the test reports it
            connection.send(_Answer(call, None, traceback.format_exc()))
    distributed.destroy_process_group()

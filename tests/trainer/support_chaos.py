"""Runs whose processes are killed at random: ranks, their checkpoint writers, at any moment.

Every rank is its own process, forked from a server that has torch imported already, so that an
attempt starts in a second and hundreds of kills fit into minutes. What an agent would do is done here:
when a rank dies, the others are killed and a new attempt starts, on another number of ranks if wanted.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from cloudrec.process.ports import free_port
from trainer.checkpoint.format import catalogue
from trainer.checkpoint.format.commit import read_commit
from trainer.checkpoint.format.runs import verify
from trainer.checkpoint.store.base import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.process import BaseProcess

    import numpy.typing as npt

PATIENCE_S = 120.0
LONGEST_LIFE = 60  # lines of metrics, two steps each, that an attempt may write before a process is killed
VICTIMS = {
    "rank": 5,
    "all ranks": 1,
    "writer": 4,
    "in a commit": 3,
    "in a merge": 3,
}  # how often, in proportion
_SAVED = re.compile(r"rank-\d+\.")


@dataclass(slots=True)
class Toll:
    """The kills, and the state of the checkpoints after each of them."""

    kills: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    verified: int = 0  # newest commits whose every byte was as written
    resumed: int = 0  # attempts that had one to resume from

    @property
    def total(self) -> int:
        """All kills."""
        return sum(self.kills.values())

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items()))
        sound = f"{self.verified} newest commits sound, {self.resumed} resumed from"
        return f"{self.total} kills ({kinds}) over {self.attempts} attempts; {sound}"


class Chaos:
    """Kills one run's processes until it is done; `random` decides all."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], dice: random.Random, toll: Toll) -> None:
        self.folder = folder
        self.settings = settings
        self.dice = dice
        self.toll = toll
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["trainer.loop.loop", "trainer.__main__"])
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def checkpoints(self) -> Path:
        """The folder of the run's checkpoints."""
        return self.folder / "checkpoints"

    def run(self, worlds: Sequence[int], plans: Sequence[Sequence[str]], most_kills: int) -> dict[str, Any]:
        """Attempt after attempt until one ends by itself; its summary. After `most_kills` none is killed."""
        before = self.toll.total
        while True:
            size, plan = self.dice.choice(worlds), self.dice.choice(plans)
            killing = self.toll.total - before < most_kills
            codes = self._attempt(size, plan, killing=killing)
            self._check_newest()
            if all(code == 0 for code in codes):
                summary: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
                return summary
            if not killing:
                raise AssertionError(f"undisturbed, yet it ended with {codes}: see {self.folder}/ranks.log")

    def weights(self) -> dict[str, npt.NDArray[np.float32]]:
        """Every weight of the finished run."""
        from trainer.commands.export import main as export  # noqa: PLC0415 - as a user would

        out = self.folder / "export"
        code = export(["--checkpoint", str(self.checkpoints), "--out", str(out)])
        assert code == 0
        return {str(path.relative_to(out)): np.load(path) for path in sorted(out.rglob("*.npy"))}

    def _attempt(self, size: int, plan: Sequence[str], *, killing: bool) -> list[int | None]:
        self.toll.attempts += 1
        self.toll.resumed += bool(self.checkpoints.exists() and any(self.checkpoints.glob("step-*/commit*")))
        port = free_port()
        settings = {**self.settings, "sharding_types": ",".join(plan), "output_dir": self.folder}
        flags = [f"--{name}={value}" for name, value in settings.items()]
        arguments = [(rank, size, port, flags, str(self.folder / "ranks.log")) for rank in range(size)]
        ranks = [self.context.Process(target=_be_a_rank, args=each, daemon=True) for each in arguments]
        for rank in ranks:
            rank.start()
        try:
            return self._watch(ranks, killing=killing)
        finally:
            writers = [writer for rank in ranks for writer in _writers(rank)]
            for rank in ranks:
                rank.kill()
                rank.join()
            _, alive = psutil.wait_procs(writers, timeout=PATIENCE_S)
            assert not alive, f"a writer outlived its trainer: {alive}"

    def _watch(self, ranks: Sequence[BaseProcess], *, killing: bool) -> list[int | None]:
        """Wait for the end of an attempt, kill processes at random times; return the exit codes."""
        give_up = time.monotonic() + PATIENCE_S
        lines = self._lines()
        while killing and self._lines() == lines and _all_alive(ranks):  # until it has begun to train
            assert time.monotonic() < give_up, "no attempt began"
            time.sleep(0.01)
        while _all_alive(ranks):
            assert time.monotonic() < give_up, "an attempt hangs"
            if killing:
                self._kill_somebody(ranks)
            time.sleep(0.01)
        # After one that finished, the others finish too, on a busy machine a little later.
        while time.monotonic() < give_up and {rank.exitcode for rank in ranks} == {0, None}:
            time.sleep(0.01)
        time.sleep(0.05)
        return [rank.exitcode for rank in ranks]

    def _lines(self) -> int:
        with suppress(OSError):
            return (self.folder / "metrics.jsonl").read_bytes().count(b"\n")
        return 0

    def _kill_somebody(self, ranks: Sequence[BaseProcess]) -> None:
        victim = self.dice.choices(list(VICTIMS), weights=list(VICTIMS.values()))[0]
        last = self._lines() + self.dice.randint(1, LONGEST_LIFE)
        wanted = victim in ("in a commit", "in a merge")
        while _all_alive(ranks) and (wanted or self._lines() < last):
            if wanted and self._lines() > last + LONGEST_LIFE:
                return  # no such moment came
            if wanted and self._lines() >= last and self._is_saving(merging=victim == "in a merge"):
                break
            time.sleep(0.0005 if wanted else 0.005)
        if not _all_alive(ranks):
            return
        chosen: list[Any] = list(ranks) if victim == "all ranks" else [self.dice.choice(ranks)]
        if victim == "writer" or (wanted and self.dice.random() < 0.5):
            chosen = _writers(chosen[0])
        if chosen:
            self.toll.kills[victim] += 1
        for each in chosen:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)

    def _is_saving(self, *, merging: bool) -> bool:
        """Whether files of a step lie there that no commit needs yet; when `merging`, of a long chain."""
        try:
            steps = sorted(path for path in self.checkpoints.iterdir() if path.name.startswith("step-"))
            newest = steps[-1] if steps else None
            if newest is None or any(newest.glob("commit*.json")):
                return False
            if not any(_SAVED.match(path.name) for path in newest.iterdir()):
                return False
            if not merging:
                return True
            commits = sorted(steps[-2].glob("commit*.json")) if len(steps) > 1 else []
            layers = len(json.loads(commits[-1].read_text())["layers"]) if commits else 0
        except (OSError, ValueError):
            return False
        return layers >= int(self.settings["checkpoint_chain"])

    def _check_newest(self) -> None:
        """Check that every byte of the newest committed checkpoint can be read."""
        if not self.checkpoints.exists():
            return
        store = open_store(str(self.checkpoints))
        listed = catalogue.list_commits(store)
        if not listed:
            return
        commit = read_commit(store, listed[-1].name)
        for reference in commit.references:
            verify(store, reference)
        self.toll.verified += 1


def _be_a_rank(rank: int, size: int, port: int, flags: list[str], log: str) -> None:
    from trainer.__main__ import main  # noqa: PLC0415 - imported by the server already

    with Path(log).open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        GLOO_SOCKET_IFNAME="lo",
        OMP_NUM_THREADS="1",
        PROCESS_GROUP_TIMEOUT_SECONDS="60",
    )
    sys.exit(main(flags))


def _writers(rank: BaseProcess) -> list[psutil.Process]:
    with suppress(psutil.Error):
        children = psutil.Process(rank.pid).children()
        return [each for each in children if "trainer.checkpoint.save.writer" in _words(each)]
    return []


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        words: list[str] = process.cmdline()
        return words
    return []


def _all_alive(ranks: Sequence[BaseProcess]) -> bool:
    return all(rank.exitcode is None for rank in ranks)

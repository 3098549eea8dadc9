"""The folder of one run, CLOUDREC_HOME/runs/RUN: its files, how it is made, what its checkpoints are."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.errors import DataError, UsageError
from cloudrec.home import is_locked, make_private, storage_error, write_atomically
from cloudrec.launch.ledger import Ledger
from cloudrec.launch.runspec import RunSpec

if TYPE_CHECKING:
    from pathlib import Path

_COMMIT = "commit-*.json"  # one for each run that wrote there
_CHECKPOINT = re.compile(r"step-(\d+)")


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """One run's folder and the names of the files in it."""

    path: Path

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def spec_file(self) -> Path:
        """What was asked for."""
        return self.path / "spec.json"

    @property
    def config_file(self) -> Path:
        """The configuration that the trainer reads."""
        return self.path / "trainer.yaml"

    @property
    def lock_file(self) -> Path:
        """Locked by the process that looks after the run, for as long as it lives."""
        return self.path / "lock"

    @property
    def metrics_file(self) -> Path:
        """The trainer's metrics, one object a line."""
        return self.path / "metrics.jsonl"

    @property
    def summary_file(self) -> Path:
        """The trainer's summary, written when it ends by itself."""
        return self.path / "summary.json"

    @property
    def logs(self) -> Path:
        """The folder of the logs."""
        return self.path / "logs"

    @property
    def agent_log(self) -> Path:
        """What the supervisor and the elastic agent have to say."""
        return self.logs / "agent.log"

    @property
    def ledger(self) -> Ledger:
        """What has happened to the run."""
        return Ledger(path=self.path / "events.jsonl")

    @property
    def is_alive(self) -> bool:
        """Whether the process that looks after the run lives."""
        return is_locked(self.lock_file)

    def rank_log(self, rank: int) -> Path:
        """Return the file that everything rank N prints goes to, through all its attempts."""
        return self.logs / f"rank-{rank}.log"

    def spec(self) -> RunSpec:
        """Read spec.json; UsageError when there is no such run, DataError when it is damaged."""
        try:
            return RunSpec.from_json(self.spec_file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            if self.path.is_dir():
                raise DataError(f"the run {self.name!r} has no spec.json in {self.path}") from error
            raise UsageError(
                f"there is no run {self.name!r} in {self.path.parent}",
                remedy="`cloudrec status` lists the runs there are",
            ) from error
        except (UnicodeDecodeError, DataError) as error:
            reason = error.message if isinstance(error, DataError) else "it is not UTF-8 text"
            raise DataError(f"{self.spec_file} is damaged: {reason}") from error
        except OSError as error:
            raise DataError(f"cannot read {self.spec_file}: {error.strerror}") from error

    def write_spec(self, spec: RunSpec) -> None:
        """Change what the next launch is made from; nothing of the run may be alive."""
        write_atomically(self.spec_file, spec.to_json())


def create_run(runs: Path, spec: RunSpec) -> RunFolder:
    """Make the folder of a new run, whole or not at all; UsageError when the name is taken."""
    make_private(runs)
    target = runs / spec.name
    draft = runs / f".{spec.name}.{os.getpid()}.new"
    shutil.rmtree(draft, ignore_errors=True)
    make_private(draft)
    make_private(draft / "logs")
    try:
        write_atomically(draft / "spec.json", spec.to_json())
        draft.rename(target)  # refused when a folder with something in it stands there
    except OSError as error:
        if target.exists():
            raise UsageError(
                f"there is a run named {spec.name!r} already, in {target}",
                remedy=f"choose another --name, or go on with it: `cloudrec train --resume {spec.name}`",
            ) from error
        raise storage_error(target, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return RunFolder(path=target)


def newest_checkpoint(folder: Path) -> int | None:
    """Return the step of the newest committed checkpoint in a folder, or None.

    Only a folder with its commit file counts: without it the checkpoint was never finished.
    """
    try:
        committed = [path.parent.name for path in folder.glob(f"*/{_COMMIT}")]
    except OSError:
        return None
    steps = [int(match[1]) for name in committed if (match := _CHECKPOINT.fullmatch(name))]
    return max(steps, default=None)

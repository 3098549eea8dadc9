"""The folder of one run, CLOUDREC_HOME/runs/RUN: its creation, its files and its checkpoints."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.errors import DataError, UsageError
from cloudrec.home import is_locked, make_private, read_text, storage_error, write_atomically
from cloudrec.launchers.base.ledger import Ledger
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.safe_path import safe_join

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_COMMIT = "commit-*.json"  # one for each run that wrote to the folder
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
        """The run's spec, as it was launched."""
        return self.path / "spec.json"

    @property
    def config_file(self) -> Path:
        """The trainer's configuration."""
        return self.path / "trainer.yaml"

    @property
    def lock_file(self) -> Path:
        """The file that the run's supervisor keeps locked while it lives."""
        return self.path / "lock"

    @property
    def metrics_file(self) -> Path:
        """The trainer's metrics, one JSON object on each line."""
        return self.path / "metrics.jsonl"

    @property
    def summary_file(self) -> Path:
        """The trainer's summary; missing if the trainer was killed."""
        return self.path / "summary.json"

    @property
    def logs(self) -> Path:
        """The folder of the logs."""
        return self.path / "logs"

    @property
    def agent_log(self) -> Path:
        """The output of the supervisor and of the elastic agent."""
        return self.logs / "agent.log"

    @property
    def ledger(self) -> Ledger:
        """The events of the run."""
        return Ledger(path=self.path / "events.jsonl")

    @property
    def is_alive(self) -> bool:
        """Whether the run's supervisor lives, by its lock."""
        return is_locked(self.lock_file)

    def rank_log(self, rank: int) -> Path:
        """Return the log with a rank's output of all its attempts."""
        return self.logs / f"rank-{rank}.log"

    def spec(self) -> RunSpec:
        """Return the run's spec; UsageError if there is no such run, DataError if spec.json is damaged."""
        return self._read_spec(self.spec_file)

    def spec_in(self, cluster: str) -> RunSpec:
        """Return the spec for another cluster that the run may move to; the same errors as `spec`."""
        return self._read_spec(_elsewhere(self.path, cluster))

    def _read_spec(self, file: Path) -> RunSpec:
        try:
            return RunSpec.from_json(read_text(file))
        except FileNotFoundError as error:
            if self.path.is_dir():
                raise DataError(f"the run {self.name!r} has no {file.name} in {file.parent}") from error
            raise UsageError(
                f"there is no run {self.name!r} in {self.path.parent}",
                remedy="`cloudrec status` lists the runs there are",
            ) from error
        except (UnicodeDecodeError, DataError) as error:
            reason = error.message if isinstance(error, DataError) else "it is not UTF-8 text"
            raise DataError(f"{file} is damaged: {reason}") from error
        except OSError as error:
            raise DataError(f"cannot read {file}: {error.strerror or error}") from error

    def write_spec(self, spec: RunSpec, *elsewhere: RunSpec) -> None:
        """Replace the specs for the next launch; no process of the run may live.

        Args:
            spec: the run's spec.
            elsewhere: its specs for other clusters.
        """
        for each in elsewhere:
            write_atomically(_elsewhere(self.path, each.cluster), each.to_json())
        write_atomically(self.spec_file, spec.to_json())


def create_run(runs: Path, spec: RunSpec, elsewhere: Sequence[RunSpec] = ()) -> RunFolder:
    """Create the folder of a new run atomically; UsageError if a run of this name exists.

    Args:
        runs: the folder of all runs.
        spec: the run.
        elsewhere: the same run for each other cluster that it may move to.
    """
    make_private(runs)
    target = runs / spec.name
    draft = runs / f".{spec.name}.{os.getpid()}.new"
    shutil.rmtree(draft, ignore_errors=True)
    make_private(draft)
    make_private(draft / "logs")
    try:
        write_atomically(draft / "spec.json", spec.to_json())
        for each in elsewhere:
            file = _elsewhere(draft, each.cluster)
            make_private(file.parent)
            write_atomically(file, each.to_json())
        draft.rename(target)  # refused if the target is a folder that is not empty
    except OSError as error:
        if target.exists():
            raise UsageError(
                f"a run named {spec.name!r} exists already, in {target}",
                remedy=f"choose another --name, or resume it: `cloudrec train --resume {spec.name}`",
            ) from error
        raise storage_error(target, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return RunFolder(path=target)


def _elsewhere(folder: Path, cluster: str) -> Path:
    """Return the file of the spec for another cluster, which may be named in foreign data."""
    return safe_join(folder / "elsewhere", f"{cluster}.json")


def newest_checkpoint(folder: Path) -> int | None:
    """Return the step of the newest committed checkpoint in a folder, or None."""
    return max(committed_steps(folder), default=None)


def committed_steps(folder: Path) -> list[int]:
    """Return the steps of the committed checkpoints in a folder; none if it cannot be read.

    Only a folder with a commit file counts: the trainer writes that file last.
    """
    try:
        committed = {path.parent.name for path in folder.glob(f"*/{_COMMIT}")}
    except OSError:
        return []
    return [int(match[1]) for name in committed if (match := _CHECKPOINT.fullmatch(name))]

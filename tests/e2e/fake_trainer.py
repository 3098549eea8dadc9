"""A fake trainer with the trainer's interface, without torch: steps, checkpoints, exit codes.

Its configuration: steps, step_s, checkpoint_interval, checkpoint_dir, ignore_stop, helper (start a process
that it leaves behind), and crashes, a list of {rank, attempt, step, how} where `how` is an exit code or
"kill", at that step or at a later one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

RANK = int(os.environ.get("RANK", "0"))
ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


class Trainer:
    def __init__(self, config: dict[str, Any], output: Path, checkpoints: str | None = None) -> None:
        self.config = config
        self.output = output
        self.checkpoints = str(checkpoints or config.get("checkpoint_dir") or output / "checkpoints")
        self.stop = False
        signal.signal(signal.SIGTERM, self.on_stop)

    def on_stop(self, _number: int, _frame: object) -> None:
        if not self.config.get("ignore_stop"):
            self.stop = True

    def run(self) -> int:
        if self.config.get("helper"):
            print(f"helper {subprocess.Popen(['sleep', '300']).pid}")
        first = self.newest()
        self.record(kind="start", world_size=int(os.environ["WORLD_SIZE"]), resumed_from=first or None)
        print(f"rank {RANK} begins at step {first}")
        for step in range(first + 1, self.config["steps"] + 1):
            time.sleep(self.config.get("step_s", 0.01))
            self.crash_if_requested(step)
            loss = 0.7 / step
            self.record(kind="train", step=step, epoch=0, loss=loss, samples_per_s=1000.0, step_s=0.01)
            print(f"rank {RANK} step {step}")
            if self.stop:
                self.commit(step)
                self.summarise("stopped", step)
                return 75
            if step % self.config.get("checkpoint_interval", 5) == 0:
                self.commit(step)
        self.commit(self.config["steps"])
        self.record(kind="eval", step=self.config["steps"], auc=0.75, logloss=0.5)
        self.summarise("finished", self.config["steps"])
        print(f"rank {RANK} has finished")
        return 0

    def crash_if_requested(self, step: int) -> None:
        for crash in self.config.get("crashes", []):
            if (crash["rank"], crash["attempt"]) != (RANK, ATTEMPT) or step < crash["step"]:
                continue
            if crash["how"] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            print(f"error: asked to fail at step {step}", file=sys.stderr)
            sys.exit(crash["how"])

    def newest(self) -> int:
        files, root = self.store()
        names = files.glob(f"{root}/step-*/commit-*.json")
        return max((int(name.split("/")[-2].removeprefix("step-")) for name in names), default=0)

    def store(self) -> tuple[Any, str]:
        """The location of checkpoints: a folder or a bucket."""
        import fsspec  # noqa: PLC0415 - for what has checkpoints

        found: tuple[Any, str] = fsspec.core.url_to_fs(self.checkpoints)
        return found

    def commit(self, step: int) -> None:
        if RANK == 0:
            files, root = self.store()
            files.makedirs(f"{root}/step-{step:08d}", exist_ok=True)
            files.pipe(f"{root}/step-{step:08d}/commit-00000001.json", b"{}")
            self.record(kind="checkpoint", step=step, seconds=0.0, bytes=2)

    def record(self, **fields: object) -> None:
        if RANK == 0:
            with (self.output / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({**fields, "attempt": ATTEMPT, "time": time.time()}) + "\n")

    def summarise(self, status: str, step: int) -> None:
        if RANK == 0:
            draft = self.output / "summary.json.new"
            draft.write_text(json.dumps({"schema_version": 1, "status": status, "step": step, "auc": 0.75}))
            draft.replace(self.output / "summary.json")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--checkpoint_dir")
    parser.add_argument("--stop_grace_seconds", type=float, help="taken, and not needed")
    parser.add_argument("--steps", type=int)
    arguments = parser.parse_args()
    config = yaml.safe_load(arguments.config.read_text())
    if arguments.steps is not None:
        config["steps"] = arguments.steps
    return Trainer(config, arguments.output_dir, arguments.checkpoint_dir).run()


if __name__ == "__main__":
    code = main()
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # as in the trainer: torchrun sends it when the first rank ends
    sys.exit(code)

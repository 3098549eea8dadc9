"""Becomes a user's script in one rank: `python -m cloudrec.launchers.base.script.run --output_dir RUN ...`.

Its flags are those that every launcher gives the trainer. It turns them into the variables of the script's
contract, and replaces itself by Python with the script, so that the script is the process that torchrun and
the agent see. It imports little: each restart waits for it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from cloudrec.launchers.base.script_program import CHECKPOINTS, FOLDER, READY, STOP
from cloudrec_contract.exit_codes import BAD_CONFIG
from cloudrec_contract.safe_json import safe_object
from cloudrec_contract.user_log import CHECKPOINTS_VARIABLE, METRICS_VARIABLE

_OURS = ("PYTHONSAFEPATH", "CLOUDREC_END_EVENT")  # for cloudrec's programs; a script runs as usual


def main(arguments: list[str]) -> NoReturn:
    """Replace this process by the script; exit with BAD_CONFIG if a secret is missing."""
    flags = dict(zip(arguments[::2], arguments[1::2], strict=False))  # of two with one name, the last counts
    run = Path(flags["--output_dir"]).absolute()
    ready = safe_object((run / READY).read_bytes())
    environment = {name: value for name, value in os.environ.items() if name not in _OURS}
    if missing := [name for name in ready["secrets"] if name not in environment]:
        print(
            f"error: the secret {', '.join(missing)} is not set on this node; set the variable in the "
            f"environment of the nodes, or create the Secret that the run refers to",
            flush=True,
        )
        sys.exit(BAD_CONFIG)
    environment |= _variables(run, flags)
    _note_start(run)
    os.chdir(run / FOLDER)
    command = [ready["python"], "-u", ready["file"], *ready["arguments"]]
    os.execve(command[0], command, environment)  # noqa: S606 - an argument list, no shell


def _variables(run: Path, flags: dict[str, str]) -> dict[str, str]:
    """Return the variables of the script's contract, and create the folder for checkpoints."""
    place = flags.get("--checkpoint_dir", "").removeprefix("file://")
    folder = Path(place) if place and "://" not in place else run / CHECKPOINTS
    with suppress(OSError):  # the script reports that it cannot write there
        folder.mkdir(parents=True, exist_ok=True)
    return {
        "CLOUDREC_RUN": os.environ.get("CLOUDREC_RUN") or run.name,
        "CLOUDREC_RUN_FOLDER": str(run),
        CHECKPOINTS_VARIABLE: str(folder),
        "CLOUDREC_CHECKPOINTS_URI": place or str(folder),
        METRICS_VARIABLE: str(run / "metrics.jsonl"),
        "CLOUDREC_STOP_FILE": str(run / STOP),
        **_given("CLOUDREC_STOP_GRACE_S", flags.get("--stop_grace_seconds")),
        **_given("CLOUDREC_DATASET", flags.get("--dataset_path")),
    }


def _given(name: str, value: str | None) -> dict[str, str]:
    return {name: value} if value else {}


def _note_start(run: Path) -> None:
    """Record in the metrics that an attempt begins, as the trainer does."""
    if os.environ.get("RANK", "0") != "0":
        return
    record = {
        "kind": "start",
        "time": time.time(),
        "world_size": int(os.environ.get("WORLD_SIZE", "1")),
        "attempt": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
    }
    with suppress(OSError), (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

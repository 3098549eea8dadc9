"""The parent of one rank's trainer: `python -m cloudrec.launch._rank RUN_DIR LAUNCH -- COMMAND...`.

It stays as a thin parent rather than becoming the trainer by exec: torch's agent keeps the ranks' exit codes
to itself, and they decide whether another attempt is of any use. So each rank's start and end go into the
run's ledger, and after an end that is final (64, 65, or a stop) a further attempt ends at once likewise.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cloudrec.errors import StorageError
from cloudrec.launch import _child
from cloudrec.launch._tether import PARENT_PID, die_with
from cloudrec.launch.folder import RunFolder
from cloudrec.launch.outputs import ATTEMPT_HEADER
from cloudrec.launch.verdict import STOPPED, final_code_of_launch


def main(arguments: list[str]) -> int:
    """Run one attempt of one rank; return the code to end with."""
    die_with(int(os.environ[PARENT_PID]))
    run = RunFolder(path=Path(arguments[0]))
    launch = int(arguments[1])
    command = arguments[arguments.index("--") + 1 :]
    rank = int(os.environ["RANK"])
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    _print_to(run.rank_log(rank))
    final = _final(run, launch=launch)
    if final is not None:
        return final
    return _attempt(run, command, launch=launch, attempt=attempt, rank=rank)


def _print_to(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for standard in _child.STANDARD:
        os.dup2(descriptor, standard)
    os.close(descriptor)


def _final(run: RunFolder, *, launch: int) -> int | None:
    """Return the code to end with at once, when what went before leaves nothing to attempt.

    The elastic agent is told to end as well, but it may lose that signal while it ends its workers (its
    log tailer swallows the exception), and goes on to the next attempt.
    """
    events = run.ledger.read()
    if any(event.event == "stopping" and event.launch == launch for event in events):
        return STOPPED
    return final_code_of_launch(events, launch=launch, world_size=int(os.environ["WORLD_SIZE"]))


def _attempt(run: RunFolder, command: list[str], *, launch: int, attempt: int, rank: int) -> int:
    print(header(launch=launch, attempt=attempt, rank=rank), flush=True)
    pid = _child.start(command)
    with suppress(StorageError):  # a full disk must not end the training: the trainer itself will tell
        run.ledger.append("rank_started", launch=launch, attempt=attempt, rank=rank, pid=pid)
    code = _child.end_of(pid)
    with suppress(StorageError):
        run.ledger.append("rank_ended", launch=launch, attempt=attempt, rank=rank, exit_code=code)
    return _child.as_exit_code(code)


def header(*, launch: int, attempt: int, rank: int) -> str:
    """Return the line with which an attempt's part of a rank's log begins."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    world_size = os.environ["WORLD_SIZE"]
    return f"{ATTEMPT_HEADER}{launch}, attempt {attempt}, rank {rank} of {world_size}, {now} ==="


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

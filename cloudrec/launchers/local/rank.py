"""The parent of one rank's trainer: `python -m cloudrec.launchers.local.rank RUN_DIR LAUNCH -- COMMAND...`.

It stays the trainer's parent, since torch's agent does not report the ranks' exit codes, and they decide
whether another attempt is useful. It records each rank's start and end in the run's ledger. After an end that
is final (64, 65, or a stop), a further attempt ends at once with the same code.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cloudrec.errors import StorageError
from cloudrec.launchers.base.outputs import ATTEMPT_HEADER
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.base.verdict import final_code_of_launch
from cloudrec.process import child
from cloudrec.process.tether import PARENT_PID, die_with
from cloudrec_contract.end_event import FILE_VARIABLE, EndEvent
from cloudrec_contract.exit_codes import STOPPED


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
    for standard in child.STANDARD:
        os.dup2(descriptor, standard)
    os.close(descriptor)


def _final(run: RunFolder, *, launch: int) -> int | None:
    """Return the code to exit with at once if another attempt is useless, else None.

    The supervisor also signals the elastic agent to end. But the agent may lose that signal while it ends its
    workers (its log tailer swallows the exception), and then continues with the next attempt.
    """
    events = run.ledger.read()
    if any(event.event == "stopping" and event.launch == launch for event in events):
        return STOPPED
    return final_code_of_launch(events, launch=launch, world_size=int(os.environ["WORLD_SIZE"]))


def _attempt(run: RunFolder, command: list[str], *, launch: int, attempt: int, rank: int) -> int:
    print(header(launch=launch, attempt=attempt, rank=rank), flush=True)
    end_file = name_end_file(run, rank)
    pid = child.start(command)
    with suppress(StorageError):  # a full disk must not end the training: the trainer itself reports it
        run.ledger.append("rank_started", launch=launch, attempt=attempt, rank=rank, pid=pid)
    code = child.end_of(pid)
    with suppress(StorageError):
        end = EndEvent.read(end_file)
        event = {"end": end.document()} if end else {}
        run.ledger.append("rank_ended", launch=launch, attempt=attempt, rank=rank, exit_code=code, **event)
    return child.as_exit_code(code)


def name_end_file(run: RunFolder, rank: int) -> Path:
    """Set the variable that names the file for a rank's end event; remove an earlier attempt's file."""
    path = (run.path / "ends" / f"rank-{rank}.json").absolute()
    with suppress(OSError):  # without the file, the exit code decides
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
    os.environ[FILE_VARIABLE] = str(path)
    return path


def header(*, launch: int, attempt: int, rank: int) -> str:
    """Return the first line of an attempt in a rank's log."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    world_size = os.environ["WORLD_SIZE"]
    return f"{ATTEMPT_HEADER}{launch}, attempt {attempt}, rank {rank} of {world_size}, {now} ==="


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

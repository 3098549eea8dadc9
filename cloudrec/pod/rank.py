"""The parent of one rank's trainer in a pod: `python -m cloudrec.pod rank -- COMMAND...`.

It does what `launch._rank` does on one machine, and prints each line twice: into the rank's log, and with the
rank before it to the pod's output. Rank 0 first takes over the run's files from whoever had them.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import StorageError, UsageError
from cloudrec.launch import _child
from cloudrec.launch._rank import header
from cloudrec.launch._tether import PARENT_PID, die_with
from cloudrec.launch.place import open_place
from cloudrec.pod import lead
from cloudrec.pod.codes import AGAIN, CRASHED, FINAL
from cloudrec.pod.settings import RUN_FOLDER, PodSettings
from cloudrec.pod.tee import Tee

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.ledger import Event

_RESTARTS = "TORCHELASTIC_RESTART_COUNT"


def main(arguments: list[str]) -> int:
    """Run one attempt of one rank; return the code to end with."""
    if "--" not in arguments or arguments[-1] == "--":
        raise UsageError("rank needs the trainer's command after --: rank -- python -m trainer ...")
    if PARENT_PID in os.environ:
        die_with(int(os.environ[PARENT_PID]))
    settings = _settings()
    run = settings.folder
    events = [event for event in run.ledger.read() if event.launch == settings.launch]
    final = _final(_of_this_agent(events))
    if final is not None:
        return final
    command = arguments[arguments.index("--") + 1 :]
    return _attempt(run, settings, command, attempt=_attempts_before(events))


def _settings() -> PodSettings:
    environment = dict(os.environ)
    if RUN_FOLDER in environment:
        environment["CLOUDREC_WORK"] = str(Path(environment[RUN_FOLDER]).parent)
    return PodSettings.from_environment(environment)


def _of_this_agent(events: Sequence[Event]) -> Sequence[Event]:
    """Return what happened since this pod's agent began: one before it was told to stop, and this one not."""
    begun = [position for position, event in enumerate(events) if event.event == "started"]
    return events[begun[-1] :] if begun else events


def _final(events: Sequence[Event]) -> int | None:
    """Return the code to end with at once, when what went before leaves nothing to attempt."""
    if any(event.event == "stopping" for event in events):
        return AGAIN
    codes = [event.details.get("exit_code") for event in events if event.event == "rank_ended"]
    return next((code for code in codes if code in FINAL), None)


def _attempts_before(events: Sequence[Event]) -> int:
    """Return how often this pod has started this process of its node.

    torch's own count stands still when nodes come or go.
    """
    mine = int(os.environ["LOCAL_RANK"])
    return sum(event.event == "rank_started" and event.details.get("local_rank") == mine for event in events)


def _attempt(run: RunFolder, settings: PodSettings, command: list[str], *, attempt: int) -> int:
    rank = int(os.environ["RANK"])
    place = {"launch": settings.launch, "attempt": attempt, "rank": rank}
    with Tee(run.rank_log(rank), prefix=f"[rank {rank}] ") as tee:
        tee.say(header(launch=settings.launch, attempt=attempt, rank=rank))
        try:
            if rank == 0 and settings.results:
                _lead(settings, attempt)
        except StorageError as error:
            tee.say(f"error: {error.message}")
            return CRASHED
        pid = _child.start(command, output=tee.descriptor)
        tee.listen()
        details = {"local_rank": int(os.environ["LOCAL_RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        with suppress(StorageError):  # a full disk must not end the training: the trainer itself will tell
            run.ledger.append("rank_started", **place, **details, pid=pid)
        code = _child.end_of(pid)
    with suppress(StorageError):
        run.ledger.append("rank_ended", **place, exit_code=code)
    return _child.as_exit_code(code)


def _lead(settings: PodSettings, attempt: int) -> None:
    claim = lead.take(open_place(settings.results), settings)
    torch_counts = int(os.environ.get(_RESTARTS, "0"))
    os.environ[_RESTARTS] = str(max(torch_counts, attempt, claim.attempt))  # over all pods of the launch


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

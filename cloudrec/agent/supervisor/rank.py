"""The parent of one rank's trainer in a pod: `python -m cloudrec.agent rank -- COMMAND...`.

It does the same as `cloudrec.launchers.local.rank` on one machine, and writes each line twice: to the rank's
log, and with the rank in front to the pod's output. Rank 0 first takes over the run's files from the pod that
led before.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.agent.lease import leader
from cloudrec.agent.settings import RUN_FOLDER, PodSettings
from cloudrec.agent.supervisor.tee import Tee
from cloudrec.errors import StorageError, UsageError
from cloudrec.launchers.base.results_store import open_place
from cloudrec.launchers.local.rank import header, name_end_file
from cloudrec.process import child
from cloudrec.process.tether import PARENT_PID, die_with
from cloudrec_contract.end_event import EndEvent
from cloudrec_contract.exit_codes import FAILED, FINAL, STOPPED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launchers.base.ledger import LedgerEvent
    from cloudrec.launchers.base.run_folder import RunFolder

_RESTARTS = "TORCHELASTIC_RESTART_COUNT"


def main(arguments: list[str]) -> int:
    """Run one attempt of one rank; return its exit code."""
    if "--" not in arguments or arguments[-1] == "--":
        raise UsageError("rank needs the trainer's command after --: rank -- python -m trainer ...")
    # The kernel's setting does not survive a fork, so each process of the chain makes it itself.
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


def _of_this_agent(events: Sequence[LedgerEvent]) -> Sequence[LedgerEvent]:
    """Return the events since this pod's agent began; an earlier agent's stop does not concern this one."""
    begun = [position for position, event in enumerate(events) if event.event == "started"]
    return events[begun[-1] :] if begun else events


def _final(events: Sequence[LedgerEvent]) -> int | None:
    """Return the code to exit with at once if another attempt is useless, else None."""
    if any(event.event == "stopping" for event in events):
        return STOPPED
    codes = [event.details.get("exit_code") for event in events if event.event == "rank_ended"]
    return next((code for code in codes if code in FINAL), None)


def _attempts_before(events: Sequence[LedgerEvent]) -> int:
    """Return how often this pod has started the process with this local rank.

    torch's own count does not include restarts because nodes joined or left.
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
            return FAILED
        end_file = name_end_file(run, rank)
        pid = child.start(command, output=tee.descriptor)
        tee.listen()
        details = {"local_rank": int(os.environ["LOCAL_RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        with suppress(StorageError):  # a full disk must not end the training: the trainer itself reports it
            run.ledger.append("rank_started", **place, **details, pid=pid)
        code = child.end_of(pid)
    with suppress(StorageError):
        end = EndEvent.read(end_file)
        event: dict[str, Any] = {"end": end.document()} if end else {}
        run.ledger.append("rank_ended", **place, exit_code=code, **event)
    return child.as_exit_code(code)


def _lead(settings: PodSettings, attempt: int) -> None:
    claim = leader.take(open_place(settings.results), settings)
    torch_counts = int(os.environ.get(_RESTARTS, "0"))
    # Only the claims count the restarts over all pods of the launch.
    os.environ[_RESTARTS] = str(max(torch_counts, attempt, claim.attempt))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

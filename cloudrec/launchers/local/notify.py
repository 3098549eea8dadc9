"""Notifies how a run on this machine ended: `python -m cloudrec.launchers.local.notify RUN_DIR`.

The supervisor starts it once the ledger has the end, in its own session: attempts may take a quarter of
an hour, and neither the run's lock nor the terminal waits for them. What it sent is in RUN/notify.json, so
that the same end is not sent twice, and each result is in the ledger.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, DataError
from cloudrec.home import locked, read_text, write_atomically
from cloudrec.launchers.base.ledger import RunState, state_after
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.base.verdict import exits_of, last_attempt
from cloudrec.notify.channels import channels_of
from cloudrec.notify.deliver import deliver
from cloudrec.notify.notice import Notification
from cloudrec.notify.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.launchers.base.ledger import LedgerEvent
    from cloudrec.launchers.base.runspec import RunSpec

OUTBOX = "notify.json"
SENT, UNSENT = "notified", "not_notified"  # events of the ledger
_PATIENCE_S = 900.0  # for all attempts; a later launch of the run continues
_ROUND_S = 30.0
_POLL_S = 0.5
_LOCK_S = 60.0
_PATIENCE = "CLOUDREC_NOTIFY_PATIENCE_S"  # for tests


def begin(run: RunFolder, spec: RunSpec) -> None:
    """Start the process that notifies how a run ended, if any receiver is named. It never fails."""
    if not spec.notify:
        return
    command = [sys.executable, "-P", "-m", "cloudrec.launchers.local.notify", str(run.path)]
    with suppress(OSError), run.agent_log.open("ab") as log:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def notice_of(run: RunFolder, spec: RunSpec, events: Sequence[LedgerEvent]) -> Notification | None:
    """Return what to send about the end of a run's newest launch; None if its user has stopped it."""
    state = state_after(events)
    ends = [event for event in events if event.event == state.lower()]
    if not state.is_final or not ends:
        return None
    end = ends[-1]
    cause = str(end.details.get("cause") or "")
    exits = exits_of(events, launch=end.launch, attempt=last_attempt(events, launch=end.launch))
    is_taken = any(each.end is not None and each.end.machine_leaves for each in exits)
    if state is RunState.SUCCEEDED:
        kind, text = "finished", f"Run {run.name} has finished."
    elif state is RunState.FAILED:
        kind, text = "failed", f"Run {run.name} has failed: {cause or 'the cause is not known'}"
    elif is_taken:
        kind, text = "preempted", f"Run {run.name} has ended since its machine was taken back: {cause}"
    else:
        return None
    details = {
        "state": state.value,
        "launch": end.launch,
        "checkpoint": end.details.get("checkpoint"),
        "exit_codes": end.details.get("exit_codes"),
    }
    return Notification(
        key=f"{kind}:{end.launch}",
        event=kind,
        at=end.time,
        text=text,
        cluster=spec.cluster,
        run=run.name,
        details=details,
    )


def send_due(run: RunFolder, environment: Mapping[str, str]) -> Outbox:
    """Send what is due, and retry until all is delivered or given up, or the patience ends."""
    from cloudrec.spec.models import NotifySpec  # noqa: PLC0415 - `status` reads what was sent without it

    spec = run.spec()
    notify = NotifySpec.model_validate(dict(spec.notify))
    secrets = {key: environment.get(name, "") for key, name in notify.secrets.items()}
    channels, problems = channels_of(notify, secrets)
    path = run.path / OUTBOX
    give_up = time.monotonic() + float(environment.get(_PATIENCE) or _PATIENCE_S)
    with locked(run.path / f"{OUTBOX}.lock", what=f"the notifications of {run.name}", wait_s=_LOCK_S):
        before = _read(path)
        notice = notice_of(run, spec, run.ledger.read())
        new = [notice] if notice is not None and notice.event in notify.events else []
        outbox = before.adding(new, [channel.name for channel in channels])
        launch = max((event.launch for event in run.ledger.read()), default=1)
        for problem in problems:
            if new and new[0].key not in before.known:
                run.ledger.append(UNSENT, launch=launch, cause=f"{problem.channel}: {problem.why}")
        write_atomically(path, outbox.to_json())
        while outbox.waiting and time.monotonic() < give_up:
            after = deliver(outbox, channels, now=time.time(), within_s=_ROUND_S)
            if after != outbox:
                write_atomically(path, after.to_json())
                _record(run, outbox, after, launch=launch)
                outbox = after
            time.sleep(_POLL_S)
    return outbox


def _record(run: RunFolder, before: Outbox, after: Outbox, *, launch: int) -> None:
    """Append what has ended since to the ledger."""
    for done in (each for each in after.done if each not in before.done):
        event = UNSENT if done.why else SENT
        cause = {"cause": f"{done.channel}: {done.why}"} if done.why else {}
        run.ledger.append(
            event, launch=launch, channel=done.channel, about=done.event, tries=done.tries, **cause
        )


def sent_of(run: RunFolder) -> Outbox:
    """Return what was sent of a run, and what waits."""
    return _read(run.path / OUTBOX)


def _read(path: Path) -> Outbox:
    try:
        return Outbox.of(read_text(path)) or Outbox()
    except (OSError, UnicodeDecodeError):
        return Outbox()


def main(arguments: Sequence[str]) -> int:
    """Send how one run ended; return 1 if a receiver could not be reached."""
    run = RunFolder(path=Path(arguments[0]))
    try:
        outbox = send_due(run, os.environ)
    except (CloudrecError, DataError, ValueError) as error:
        print(f"notifications: {error}", file=sys.stderr, flush=True)
        return 1
    for waiting in outbox.waiting:
        run.ledger.append(
            UNSENT, launch=1, cause=f"{waiting.channel}: {waiting.why or 'it was not reached in time'}"
        )
    return 1 if outbox.waiting else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

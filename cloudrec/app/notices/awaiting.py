"""Notifies how a run ends that no keeper and no supervisor watches: a run of Slurm or of a Ray cluster.

`python -m cloudrec.app.notices.awaiting RUN_DIR` looks for the end of the newest launch, and sends it as a
run on this machine does. `train` starts it in a separate session, and `status` starts it again if it has
ended: with this machine, or before the run. The secrets are variables of that command, as for runs on this
machine, so that neither the engine nor its nodes get them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import BusyError, CloudrecError
from cloudrec.home import locked
from cloudrec.launchers import launcher as find_launcher
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.local import notify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.observe.runs import RunView

_LOCK = "awaiting.lock"
_POLL_S = 30.0
_POLL = "CLOUDREC_NOTIFY_POLL_S"  # for tests
_started: list[subprocess.Popen[bytes]] = []  # by this process, which reaps them if it lives longer


def await_end(run: RunFolder, spec: RunSpec) -> None:
    """Start the process that notifies how a run ends, if it is one for this machine. It never fails."""
    if not _is_ours(spec):
        return
    command = [sys.executable, "-P", "-m", "cloudrec.app.notices.awaiting", str(run.path)]
    _started[:] = [each for each in _started if each.poll() is None]
    with suppress(OSError), run.agent_log.open("ab") as log:
        _started.append(
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        )


def await_ends(app: AppContext, views: Sequence[RunView]) -> None:
    """Start that process for each run whose end is still to be sent, and that no process waits for."""
    for view in views:
        if view.launcher is None or find_launcher(view.launcher).nodes_of_cluster:
            continue  # it has a supervisor or a keeper, or is damaged, which its row says
        run = RunFolder(path=app.home.run(view.name))
        try:
            spec = run.spec()
            if not _is_ours(spec) or not _is_due(run, spec, view):
                continue
            if lacks := lacking(spec, app.environment):
                app.report(f"warning: the end of run {view.name} is not sent: not set here: {lacks}")
            else:
                await_end(run, spec)
        except CloudrecError:
            continue  # as above


def lacking(spec: RunSpec, environment: Mapping[str, str]) -> str:
    """Return the variables with secrets that are not set, separated by commas."""
    from cloudrec.spec.models import NotifySpec  # noqa: PLC0415 - `status` seldom needs the spec's models

    secrets = NotifySpec.model_validate(dict(spec.notify)).secrets
    return ", ".join(name for name in secrets.values() if not environment.get(name))


def _is_ours(spec: RunSpec) -> bool:
    """Return whether this machine notifies how a run ends that is not on it."""
    return bool(spec.notify) and not find_launcher(spec.launcher).nodes_of_cluster


def _is_due(run: RunFolder, spec: RunSpec, view: RunView) -> bool:
    if view.is_over:
        notice = notify.notice_of(run, spec, run.ledger.read())
        return notice is not None and notice.key not in notify.sent_of(run).known
    try:
        with locked(run.path / _LOCK, what=f"the end of {run.name}"):
            return True
    except BusyError:
        return False


def watch(run: RunFolder, environment: Mapping[str, str]) -> int:
    """Wait until a run's newest launch has ended, and send that; return 1 if a receiver was not reached.

    Args:
        run: the run's folder on this machine.
        environment: has the secrets.
    """
    pause_s = float(environment.get(_POLL) or _POLL_S)
    engine = find_launcher(run.spec().launcher)
    while run.path.is_dir():
        with suppress(CloudrecError):  # it does not answer now
            if engine.state(run).state.is_final:
                code = notify.main([str(run.path)])
                if engine.state(run).state.is_final:  # a later launch has its own end
                    return code
        time.sleep(pause_s)
    return 0


def main(arguments: Sequence[str]) -> int:
    """Notify how one run ends, unless another process does."""
    run = RunFolder(path=Path(arguments[0]))
    try:
        with locked(run.path / _LOCK, what=f"the end of {run.name}"):
            return watch(run, os.environ)
    except BusyError:
        return 0
    except CloudrecError as error:
        print(f"notifications: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

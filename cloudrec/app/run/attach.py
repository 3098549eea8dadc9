"""The use cases that reach into a run: a command beside a rank, a shell, a port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.app.run.manage import run_folder
from cloudrec.errors import UsageError
from cloudrec.launchers import launcher as find_launcher
from cloudrec.launchers.base.attach import ForwardsPorts, RunsCommands
from cloudrec.observe.runs import load_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.launchers.base.run_folder import RunFolder


def execute(
    app: AppContext, name: str | None, command: Sequence[str], *, rank: int, stdin: bool, terminal: bool
) -> int:
    """Run a command where a rank of a run runs, and return its exit code; see `RunsCommands.execute`.

    Args:
        app: the context of the use case.
        name: the run; None for the newest one.
        command: the command and its arguments.
        rank: the rank.
        stdin: whether the command gets this process's stdin.
        terminal: whether it gets a terminal.

    Raises:
        UsageError: the run has ended, or its launcher cannot do that.
    """
    folder = _alive(app, name)
    launcher = find_launcher(folder.spec().launcher)
    if not isinstance(launcher, RunsCommands):
        raise UsageError(
            f"run {folder.name} is of the launcher {launcher.name}, which can start no program beside a rank",
            remedy=f"`cloudrec logs {folder.name}` shows its output; log in to the node by the means of its "
            "own cluster, such as `kubectl exec` for a pod of KubeRay",
        )
    return launcher.execute(folder, command, rank=rank, stdin=stdin, terminal=terminal)


def forward(
    app: AppContext,
    name: str | None,
    *,
    rank: int,
    remote: int,
    local: int,
    ready: Callable[[str, int], None],
) -> None:
    """Serve a port of a rank on this machine until Ctrl-C; see `ForwardsPorts.forward`.

    Args:
        app: the context of the use case.
        name: the run; None for the newest one.
        rank: the rank.
        remote: the port where the rank runs.
        local: the port on this machine; 0 for a free one.
        ready: called with the run's name and the port on this machine once it takes connections.

    Raises:
        UsageError: the run has ended, or its launcher cannot do that.
    """
    folder = _alive(app, name)
    launcher = find_launcher(folder.spec().launcher)
    if not isinstance(launcher, ForwardsPorts):
        raise UsageError(
            f"run {folder.name} is of the launcher {launcher.name}, whose ports are not forwarded",
            remedy=f"a local run has its ports on this machine: connect to 127.0.0.1:{remote}; elsewhere use "
            f"`ssh -L {local or remote}:NODE:{remote} LOGIN_NODE`",
        )
    launcher.forward(
        folder, rank=rank, remote=remote, local=local, ready=lambda port: ready(folder.name, port)
    )


def _alive(app: AppContext, name: str | None) -> RunFolder:
    """Return the folder of a run that has not ended; UsageError for another one."""
    folder = run_folder(app, name)
    view = load_run(app.home.runs, folder.name)
    if view.state.is_final:
        raise UsageError(
            f"run {folder.name} is {view.state}, so nothing of it runs",
            remedy=f"`cloudrec logs {folder.name}` shows what it printed, `cloudrec fetch {folder.name}` "
            f"copies its files, and `cloudrec train --resume {folder.name}` runs it again",
        )
    return folder

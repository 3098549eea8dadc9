"""The commands that reach into a run: exec, ssh, port-forward."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from cloudrec.cli.console import announce
from cloudrec.cli.options import complete_runs, context
from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from cloudrec.app import AppContext

_HIGHEST_PORT = 65535
# The best shell that the container has.
_SHELL = ("sh", "-c", "command -v bash > /dev/null && exec bash -l; exec sh -l")

rank_option = click.option(
    "--rank", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="The rank."
)


@click.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("run", shell_complete=complete_runs)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@rank_option
@click.option("-i", "--stdin", is_flag=True, help="Pass stdin to the command.")
@click.option("-t", "--tty", "terminal", is_flag=True, help="Give the command this terminal; implies -i.")
def execute(run: str, command: tuple[str, ...], *, rank: int, stdin: bool, terminal: bool) -> int:
    """Run COMMAND where a rank of RUN runs; its exit code is returned.

    \b
    Examples:
      cloudrec exec ads -- nvidia-smi
      cloudrec exec ads --rank 9 -- py-spy dump --pid 1
      cloudrec exec ads -i -- sh < script.sh
      cloudrec exec ads -it -- bash

    On Kubernetes, COMMAND runs in the container of the rank, through the API server. On this machine, it
    runs in the folder of the run with the variables of the rank; on Slurm, as a step of the run's job.
    """  # noqa: D301  # \b is click's mark for lines that are not to be joined
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    return app.execute(context(), run, command, rank=rank, stdin=stdin or terminal, terminal=terminal)


@click.command()
@click.argument("name", metavar="RUN|CLUSTER", shell_complete=complete_runs)
@rank_option
def ssh(name: str, *, rank: int) -> int:
    """Open a shell where a rank of RUN runs, or rank 0 of the newest run on CLUSTER.

    On Kubernetes no SSH is involved: the shell is in the container, through the API server.
    """
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    application = context()
    if not sys.stdin.isatty():
        raise UsageError("stdin is no terminal", remedy=f"cloudrec exec {name} -i -- sh, for a script")
    run = _run_on(application, name)
    return app.execute(application, run, _SHELL, rank=rank, stdin=True, terminal=True)


@click.command("port-forward")
@click.argument("run", shell_complete=complete_runs)
@click.argument("ports", metavar="[LOCAL:]REMOTE")
@rank_option
def port_forward(run: str, ports: str, *, rank: int) -> None:
    """Serve port REMOTE of a rank of RUN on 127.0.0.1:LOCAL until Ctrl-C.

    LOCAL is the same port by default, and 0 is a free one.

    \b
    Examples:
      cloudrec port-forward ads 6006     TensorBoard in the rank's container
      cloudrec port-forward ads 0:8888   a notebook there, on a free port here
    """  # noqa: D301  # \b is click's mark for lines that are not to be joined
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    first, colon, second = ports.partition(":")
    remote = _port(second if colon else first, least=1)
    local = _port(first, least=0) if colon else remote

    def ready(name: str, port: int) -> None:
        announce(f"http://127.0.0.1:{port} is port {remote} of rank {rank} of run {name}; Ctrl-C ends it")

    try:
        app.forward(context(), run, rank=rank, remote=remote, local=local, ready=ready)
    except KeyboardInterrupt:
        announce("the port is closed; the run continues")


def _run_on(application: AppContext, name: str) -> str:
    """Return a run's name: the given one, or that of the newest run on the cluster of this name."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    found = app.runs_of(application, name)
    if any(view.name == name for view in found):
        return name
    alive = [view for view in found if not view.state.is_final]
    if alive:
        return alive[0].name
    if all(record.name != name for record in application.journal.clusters()):
        raise UsageError(f"there is no run or cluster {name!r}", remedy="`cloudrec status` lists all")
    raise UsageError(
        f"no run is alive on cluster {name!r}, so it has no container for a shell",
        remedy="`cloudrec train` launches a run; `kubectl debug node/NODE -it --image=IMAGE` opens a shell "
        "on a node",
    )


def _port(text: str, *, least: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= _HIGHEST_PORT:
        raise UsageError(
            f"{text!r} is no port from {least} to {_HIGHEST_PORT}", remedy="as in 6006, or 16006:6006"
        )
    return int(text)

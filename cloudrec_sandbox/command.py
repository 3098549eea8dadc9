"""`python -m cloudrec_sandbox run|attach|stop|session`: commands on stand-ins."""

from __future__ import annotations

import argparse
import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import cloudrec_sandbox
from cloudrec.errors import UsageError
from cloudrec.spec.suggest import did_you_mean
from cloudrec_sandbox import session
from cloudrec_sandbox.run import Rehearsal, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_WITHOUT_CLOUD = {"metadata"}  # a service that runs beside a trainer: there is no cluster to create on it


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy="see `cloudrec sandbox run --help`")


def main(arguments: Sequence[str]) -> int:
    """Run one of COMMANDS; return its exit code.

    Raises:
        UsageError: an option is wrong, there is no such stand-in, or no such command.
        PreflightError: the stand-in did not start; the command was not run.
    """
    return COMMANDS[arguments[0]](arguments[1:])


def _run(arguments: Sequence[str]) -> int:
    """Run a command on a stand-in that ends with it."""
    parser = _Parser(prog="python -m cloudrec_sandbox run", description="Run a command on a stand-in.")
    parser.add_argument("--speed", type=float, help="seconds of the cloud in one second")
    parser.add_argument("--quota", choices=["granted", "none"], default="granted")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--no-pods", action="store_true")
    parser.add_argument("cloud")
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args(arguments)
    rehearsal = Rehearsal(
        name=_known(chosen.cloud),
        command=chosen.command,
        speed=chosen.speed,
        has_quotas=chosen.quota == "granted",
        port=chosen.port,
        home=chosen.home,
        # Pods are processes in Linux namespaces.
        has_pods=sys.platform == "linux" and not chosen.no_pods,
    )
    return run(rehearsal, os.environ)


def _attach(arguments: Sequence[str]) -> int:
    """Run a command in the session of a cloud, which the command's words name, or in the only session."""
    parser = _Parser(prog="cloudrec --sandbox", description="Run a command on stand-ins that stay.")
    parser.add_argument("command", nargs="+")
    words = parser.parse_args(arguments).command
    session.attach(_named(words), words, os.environ)


def _stop(arguments: Sequence[str]) -> int:
    """End the session of a cloud, or all sessions."""
    parser = _Parser(prog="cloudrec sandbox stop", description="End stand-ins that run in the background.")
    parser.add_argument("cloud", nargs="?")
    cloud = parser.parse_args(arguments).cloud
    ended = session.stop(_known(cloud) if cloud else None, os.environ)
    print("\n".join(f"sandbox {name!r} is stopped" for name in ended) or "no sandbox is running")
    return 0


def _session(arguments: Sequence[str]) -> int:
    """Be the process of a session; `_attach` starts it."""
    name, folder = arguments
    return session.serve(_known(name), Path(folder), os.environ)


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "run": _run,
    "attach": _attach,
    "stop": _stop,
    "session": _session,
}


def _clouds() -> list[str]:
    return [name for name in cloudrec_sandbox.names() if name not in _WITHOUT_CLOUD]


def _known(name: str) -> str:
    """Return the name of a stand-in; UsageError if there is no such one."""
    if name not in _clouds():
        raise UsageError(f"there is no stand-in {name!r}", remedy=did_you_mean(name, _clouds()))
    return name


def _named(words: Sequence[str]) -> str | None:
    """Return the cloud that the words of a cloudrec command name; None if they name none."""
    own = words[1 : words.index("--")] if "--" in words else words[1:]
    for number, word in enumerate(own):
        option, _, value = word.partition("=")
        if option == "--provider":
            return _known(value or (own[number + 1] if number + 1 < len(own) else ""))
    # `up` and `down` take the provider as their argument. After an option, the word may be its value, as in
    # `--cluster aws`, or the argument, as in `--yes aws`.
    found = [(before.startswith("-"), word) for before, word in pairwise(own) if word in _clouds()]
    return min(found)[1] if found else None

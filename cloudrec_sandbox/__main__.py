"""`python -m cloudrec_sandbox NAME --port P`: run one stand-in in the foreground until it is ended.

It prints one JSON line, {"endpoints": {...}, "env": {...}}: what a client needs to reach it. `--port 0` takes
a free port. Only this machine can reach it. `POST /_control` sets faults. It takes JSON, with the token of
the variable CLOUDREC_SANDBOX_TOKEN in the header X-Cloudrec-Sandbox-Token.

To run a command on a stand-in, use `cloudrec sandbox run NAME -- COMMAND`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn

import cloudrec_sandbox
from cloudrec.errors import CloudrecError, PreflightError, UsageError
from cloudrec_sandbox import command

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAST_PORT = 65535


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy="`python -m cloudrec_sandbox --help` lists what there is")


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C, or run a command on a stand-in; return the exit code."""
    if arguments and arguments[0] in command.COMMANDS:
        return _run(arguments)
    try:
        chosen = _parsed(arguments)
        server = _open(chosen)
    except CloudrecError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        # The extra has the stand-in's name. A missing module of cloudrec itself is a defect: show it whole.
        if str(error.name).partition(".")[0] == "cloudrec":
            raise
        extras = f"pip install 'cloudrec[sandbox,{chosen.name}]'"
        print(f"error: no module named {error.name!r} is installed; {extras}", file=sys.stderr)
        return PreflightError.exit_code
    with server:
        # `cloudrec sandbox run` holds the pipe's other end: the stand-in ends with it even after SIGKILL.
        if chosen.until_eof:
            Thread(target=_end_with_input, name="until-eof", daemon=True).start()
        signal.signal(signal.SIGTERM, _leave)
        signal.signal(signal.SIGINT, _leave)
        print(json.dumps(server.announcement()), flush=True)
        server.serve_forever()
    return 0


def _run(arguments: Sequence[str]) -> int:
    try:
        return command.main(arguments)
    except CloudrecError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.remedy:
            print(f"remedy: {error.remedy}", file=sys.stderr)
        return error.exit_code


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="python -m cloudrec_sandbox", description="Run a stand-in for a cloud's service.")
    parser.add_argument("name", choices=cloudrec_sandbox.names(), help="which one")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (0: a free one)")
    parser.add_argument(
        "--until-eof", action="store_true", help="end when standard input ends, as it does with its writer"
    )
    chosen = parser.parse_args(arguments)
    if not 0 <= chosen.port <= _LAST_PORT:
        raise UsageError(
            f"port {chosen.port} is not within 0 to {_LAST_PORT}", remedy="take 0 for a free one"
        )
    return chosen


def _open(chosen: argparse.Namespace) -> Any:  # noqa: ANN401 - each stand-in has its own server class
    try:
        return import_module(f"cloudrec_sandbox.{chosen.name}").serve(chosen.port)
    except OSError as error:
        raise UsageError(
            f"port {chosen.port} cannot be used: {error.strerror}", remedy="take another, or 0 for a free one"
        ) from error


def _end_with_input() -> None:
    # `os.read` takes no lock; a thread in `sys.stdin.read` would hold one when the interpreter ends.
    while os.read(0, 1 << 16):
        continue
    signal.raise_signal(signal.SIGTERM)


def _leave(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

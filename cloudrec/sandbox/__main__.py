"""`python -m cloudrec.sandbox NAME --port P`: run one stand-in in the foreground until it is ended.

It prints one JSON line, {"endpoints": {...}, "env": {...}}: what a client needs to reach it. `--port 0` takes
a free one. Nothing but this machine can reach it. `POST /_control` on it sets faults.
"""

from __future__ import annotations

import argparse
import json
import pkgutil
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from cloudrec import sandbox
from cloudrec.errors import CloudrecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAST_PORT = 65535


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy="`python -m cloudrec.sandbox --help` lists what there is")


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C; return the exit code."""
    try:
        server = _open(arguments)
    except CloudrecError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code
    with server:
        signal.signal(signal.SIGTERM, _leave)
        signal.signal(signal.SIGINT, _leave)
        print(json.dumps(server.announcement()), flush=True)
        server.serve_forever()
    return 0


def _open(arguments: Sequence[str]) -> Any:  # noqa: ANN401 - each stand-in has a server class of its own
    names = sorted(module.name for module in pkgutil.iter_modules(sandbox.__path__) if module.ispkg)
    parser = _Parser(prog="python -m cloudrec.sandbox", description="Run a stand-in for a cloud's service.")
    parser.add_argument("name", choices=names, help="which one")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (0: a free one)")
    chosen = parser.parse_args(arguments)
    if not 0 <= chosen.port <= _LAST_PORT:
        raise UsageError(
            f"port {chosen.port} is not within 0 to {_LAST_PORT}", remedy="take 0 for a free one"
        )
    try:
        return import_module(f"cloudrec.sandbox.{chosen.name}").serve(chosen.port)
    except OSError as error:
        raise UsageError(
            f"port {chosen.port} cannot be used: {error.strerror}", remedy="take another, or 0 for a free one"
        ) from error


def _leave(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

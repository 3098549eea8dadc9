"""`python -m cloudrec_server`: what `cloudrec serve` becomes. That command has the help and checks flags."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, UsageError
from cloudrec_contract.exit_codes import BAD_CONFIG, BAD_DATA
from cloudrec_server.settings import ServerSettings
from trainer.base.console import importing_torch
from trainer.base.errors import TrainerError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Serve until a signal; return the exit code of `cloudrec serve`."""
    settings = _parse(argv)
    try:
        with importing_torch():
            from cloudrec_server.server import serve  # noqa: PLC0415 - torch takes seconds to import
        serve(settings)
    except TrainerError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return UsageError.exit_code if error.exit_code in (BAD_CONFIG, BAD_DATA) else error.exit_code
    except CloudrecError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.remedy:
            print(f"remedy: {error.remedy}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def _parse(argv: Sequence[str]) -> ServerSettings:
    parser = argparse.ArgumentParser(prog="python -m cloudrec_server", allow_abbrev=False)
    parser.add_argument("package", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-batch-ms", type=float, default=0.0)
    parser.add_argument("--max-rows", type=int, default=4096)
    parser.add_argument("--max-body-mb", type=int, default=8)
    parser.add_argument("--poll-seconds", type=float, default=5.0)
    given = parser.parse_args(argv)
    return ServerSettings(
        package=given.package,
        host=given.host,
        port=given.port,
        threads=given.threads,
        max_batch_ms=given.max_batch_ms,
        max_rows=given.max_rows,
        max_body=given.max_body_mb << 20,
        poll_s=given.poll_seconds,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m trainer`: one rank of a training run, alone or under torchrun."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from trainer.arguments import parse_arguments
from trainer.console import guarded, importing_torch

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Check the configuration or train; the exit code of the process."""
    return guarded(lambda: _main(argv))


def _main(argv: Sequence[str]) -> int:
    arguments = parse_arguments(argv)
    if arguments.check_only:
        print(arguments.config.model_dump_json(indent=2))
        return 0
    with importing_torch():
        from trainer.loop import run  # noqa: PLC0415 - torch takes seconds to import
    return run(arguments.config)


if __name__ == "__main__":
    _code = main(sys.argv[1:])
    # Torchrun ends the ranks that outlive the first by a SIGTERM: what is over must not end by that instead.
    for _number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.signal(_number, signal.SIG_IGN)
    sys.exit(_code)

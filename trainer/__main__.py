"""`python -m trainer`: one rank of a training run, alone or under torchrun."""

from __future__ import annotations

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
    sys.exit(main(sys.argv[1:]))

"""`python -m trainer`: one rank of a training run, alone or under torchrun."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from cloudrec_contract.exit_codes import FAILED
from trainer.base.arguments import parse_arguments
from trainer.base.console import guarded, importing_torch
from trainer.base.ending import RankEnding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.base.config import TrainerConfig

MADE_UP_DATA = "trainer.data.formats.synthetic:made_up"
MADE_UP_STEPS = 200


def main(argv: Sequence[str]) -> int:
    """Check the configuration, or train; return the exit code of the process."""
    ending, code = RankEnding(), FAILED
    try:
        code = guarded(lambda: _main(argv, ending), note=ending.blame)
    except Exception as error:
        ending.blame(f"{type(error).__name__}: {error}")
        raise
    finally:
        ending.write(code)
    return code


def _main(argv: Sequence[str], ending: RankEnding) -> int:
    arguments = parse_arguments(argv)
    if arguments.check_only:
        print(arguments.config.model_dump_json(indent=2))
        return 0
    with importing_torch():
        from trainer.loop.loop import run  # noqa: PLC0415 - torch takes seconds to import
    return run(_with_data(arguments.config), ending)


def _with_data(config: TrainerConfig) -> TrainerConfig:
    """Return the settings, with made-up samples if they name no data."""
    if config.dataset is not None or config.dataset_path is not None:
        return config
    steps = config.num_iterations or MADE_UP_STEPS
    if os.environ.get("RANK", "0") == "0":
        print(
            f"no data is given: training {steps:,} steps on made-up samples, which teach nothing; "
            "--dataset_path DIR trains on data that `cloudrec data prepare` made",
            flush=True,
        )
    return config.model_copy(update={"dataset": MADE_UP_DATA, "num_iterations": steps})


if __name__ == "__main__":
    _code = main(sys.argv[1:])
    # Torchrun sends SIGTERM to ranks that end after the first; a finished rank must still exit with its code.
    for _number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.signal(_number, signal.SIG_IGN)
    sys.exit(_code)

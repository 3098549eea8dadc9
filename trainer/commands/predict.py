"""`python -m trainer.predict`: score a split with a trained model, on one device and without ranks.

    python -m trainer.predict --checkpoint DIR --dataset_path DATA [--split test] [--out scores.npy]
    python -m trainer.predict --checkpoint DIR --dataset MODULE:FACTORY ...

DIR is a run's checkpoint_dir or an export's folder. The probabilities (float32, in the order of the split's
rows or of the loader) are written to --out; with --vectors, a retrieval model's vectors (float32, [rows,
width]), and for items also their ids, in the file with `.ids` before `.npy`. The metrics, those of a run's
evaluation, are printed as one JSON object.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cloudrec_contract.settings import underscored_flags
from trainer.base.console import guarded, importing_torch
from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


class CommandParser(argparse.ArgumentParser):
    """Raises a ConfigError for a bad command line, which exits with 64."""

    def error(self, message: str) -> NoReturn:
        """See argparse."""
        raise ConfigError(f"{message}; `python -m {self.prog.split()[-1]} --help` lists the flags")


def main(argv: Sequence[str]) -> int:
    """Score a split; return the exit code of the process."""
    return guarded(lambda: _main(argv))


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose the model and its quantisation."""
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        required=True,
        help="a run's checkpoint_dir (its newest committed checkpoint is taken), or an export's folder",
    )
    parser.add_argument("--step", type=int, metavar="N", help="the checkpoint of this step, not the newest")
    parser.add_argument(
        "--quantize",
        choices=("none", "int8", "int4"),
        default="none",
        help="quantise the tables by rows with fbgemm [none]",
    )


def _main(argv: Sequence[str]) -> int:
    arguments = _make_parser().parse_args(underscored_flags(argv))
    if arguments.batch_size is not None and arguments.batch_size < 1:
        raise ConfigError(f"batch_size is {arguments.batch_size}; it must be at least 1")
    out = Path(arguments.out) if arguments.out else None
    if arguments.vectors and out is None:
        raise ConfigError(f"vectors is {arguments.vectors}, but out is not given; name the file for them")
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"out {out}: there is no folder {out.parent}; make it first")
    with importing_torch():
        from trainer.commands import scoring  # noqa: PLC0415 - torch takes seconds to import
    trained = scoring.open_model(arguments.checkpoint, arguments.step, arguments.quantize)
    result = scoring.score_split(
        trained,
        dataset_path=arguments.dataset_path,
        dataset=arguments.dataset,
        split=arguments.split,
        batch_size=arguments.batch_size,
        device_choice=arguments.device,
        out=out,
        vectors=arguments.vectors,
    )
    print(json.dumps(result))
    return 0


def _make_parser() -> CommandParser:
    parser = CommandParser(
        prog="python -m trainer.predict",
        description="Score a split of a dataset with a trained model, on one device.",
        epilog="Exit codes: 0 done, 64 bad usage, 65 bad data, 1 anything else.",
        allow_abbrev=False,
    )
    add_model_flags(parser)
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--dataset_path", metavar="URI", help="the dataset to score")
    data.add_argument(
        "--dataset", metavar="MODULE:FACTORY", help="your own loader instead, as in `python -m trainer`"
    )
    parser.add_argument("--split", choices=("train", "test"), default="test", help="[test]")
    parser.add_argument(
        "--out", metavar="FILE", help="file for the probabilities (.npy, float32 [rows]; default: none)"
    )
    parser.add_argument(
        "--vectors",
        choices=("user", "item"),
        help="of two_tower: write the vectors of the split's rows, or of all items, to --out",
    )
    parser.add_argument("--batch_size", type=int, metavar="N", help="samples scored at once [as in the run]")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="[auto]")
    return parser

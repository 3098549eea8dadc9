"""`python -m trainer.predict`: score a split with a trained model, on one device and without ranks.

    python -m trainer.predict --checkpoint DIR --dataset_path DATA [--split test] [--out scores.npy]
    python -m trainer.predict --checkpoint DIR --dataset MODULE:FACTORY ...
    python -m trainer.predict --checkpoint DIR --raw FILE... [--max_bad_rows N] [--out scores.npy]

DIR is a run's checkpoint_dir or an export's folder. The probabilities (float32, in the order of the split's
rows or of the loader) are written to --out. The metrics, those of a run's evaluation, are printed as one JSON
object. With several labels, --out has a column for each, [rows, labels], in the order of `tasks` in the JSON.
With --vectors, --out has a retrieval model's vectors (float32, [rows, width]); those of items have their ids
in the file with `.ids` before `.npy`.
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


_MOST_BAD_ROWS = 10_000  # `data prepare` names so many


class CommandParser(argparse.ArgumentParser):
    """Raises a ConfigError for a bad command line, which exits with 64."""

    def error(self, message: str) -> NoReturn:
        """See argparse."""
        raise ConfigError(f"{message}; `{self.prog} --help` lists the flags")


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
        choices=("none", "fp16", "int8", "int4"),
        default="none",
        help="tables of 16-bit floats, or quantised by rows with fbgemm [none]",
    )


def _main(argv: Sequence[str]) -> int:
    arguments = _make_parser().parse_args(underscored_flags(argv))
    if arguments.batch_size is not None and arguments.batch_size < 1:
        raise ConfigError(f"batch_size is {arguments.batch_size}; it must be at least 1")
    if not 0 <= arguments.max_bad_rows <= _MOST_BAD_ROWS:
        raise ConfigError(
            f"max_bad_rows is {arguments.max_bad_rows}; it must be between 0 and {_MOST_BAD_ROWS:,}"
        )
    out = Path(arguments.out) if arguments.out else None
    if arguments.vectors and out is None:
        raise ConfigError(f"vectors is {arguments.vectors}, but out is not given; name the file for them")
    if arguments.vectors and arguments.raw is not None:
        raise ConfigError(
            f"vectors is {arguments.vectors}, but raw rows are only scored; prepare them with `cloudrec data "
            "prepare --like` and give --dataset_path"
        )
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"out {out}: there is no folder {out.parent}; make it first")
    with importing_torch():
        from trainer.commands import scoring  # noqa: PLC0415 - torch takes seconds to import
    trained = scoring.open_model(arguments.checkpoint, arguments.step, arguments.quantize)
    if arguments.raw is not None:
        result = scoring.score_raw(
            trained,
            files=arguments.raw,
            max_bad_rows=arguments.max_bad_rows,
            batch_size=arguments.batch_size,
            device_choice=arguments.device,
            out=out,
        )
        print(json.dumps(result))
        return 0
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
    data.add_argument(
        "--raw",
        metavar="FILE",
        nargs="+",
        help="rows that are not prepared: files, folders or patterns, as `cloudrec data prepare` takes them. "
        "They are encoded as the training data; labels may be missing, and then there are no metrics",
    )
    parser.add_argument(
        "--max_bad_rows",
        type=int,
        default=0,
        metavar="N",
        help="with --raw, malformed rows that get the score NaN; with more, nothing is scored [0]",
    )
    parser.add_argument("--split", choices=("train", "test"), default="test", help="[test]")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="file for the probabilities (.npy, float32 [rows], or [rows, labels]; default: none)",
    )
    parser.add_argument(
        "--vectors",
        choices=("user", "item"),
        help="of two_tower: write the vectors of the split's rows, or of all items, to --out",
    )
    parser.add_argument("--batch_size", type=int, metavar="N", help="samples scored at once [as in the run]")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="[auto]")
    return parser

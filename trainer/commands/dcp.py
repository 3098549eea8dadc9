"""`python -m trainer.dcp`: convert a checkpoint to torch.distributed.checkpoint's format, and back.

python -m trainer.dcp to   --checkpoint DIR --out FOLDER [--step N]
python -m trainer.dcp from --dcp FOLDER --out DIR [--like DIR] --trusted
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec_contract.settings import underscored_flags
from trainer.base.console import guarded, importing_torch
from trainer.base.errors import ConfigError
from trainer.commands.predict import CommandParser

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Convert; return the exit code of the process."""
    return guarded(lambda: _main(argv))


def _main(argv: Sequence[str]) -> int:
    arguments = _make_parser().parse_args(underscored_flags(argv))
    if arguments.way == "from" and not arguments.trusted:
        raise ConfigError(
            f"dcp {arguments.dcp}: torch keeps its metadata as a pickle, which can run any code when it is "
            "read; add --trusted if you know who wrote it"
        )
    with importing_torch():
        from trainer.commands import interchange  # noqa: PLC0415 - torch takes seconds to import
    if arguments.way == "to":
        result = interchange.to_dcp(arguments.checkpoint, arguments.step, Path(arguments.out))
    else:
        result = interchange.from_dcp(Path(arguments.dcp), arguments.like, arguments.out)
    print(json.dumps(result))
    return 0


def _make_parser() -> CommandParser:
    parser = CommandParser(
        prog="python -m trainer.dcp",
        description="Convert a checkpoint to torch.distributed.checkpoint's format, and back.",
        epilog="Exit codes: 0 done, 64 bad usage, 1 anything else.",
        allow_abbrev=False,
    )
    ways = parser.add_subparsers(dest="way", required=True, metavar="to|from")
    to = ways.add_parser("to", help="write a checkpoint in torch's format", allow_abbrev=False)
    to.add_argument("--checkpoint", metavar="DIR", required=True, help="a run's checkpoint_dir")
    to.add_argument("--step", type=_step, metavar="N", help="the checkpoint of this step, not the newest")
    to.add_argument("--out", metavar="FOLDER", required=True, help="a new or empty folder")
    back = ways.add_parser("from", help="make a checkpoint of one in torch's format", allow_abbrev=False)
    back.add_argument("--dcp", metavar="FOLDER", required=True, help="the checkpoint in torch's format")
    back.add_argument("--out", metavar="DIR", required=True, help="a folder or bucket without checkpoints")
    back.add_argument(
        "--like",
        metavar="DIR",
        help="a checkpoint_dir with the model's sizes and encoding, for a checkpoint of another tool",
    )
    back.add_argument("--trusted", action="store_true", help="read its pickle, which can run code")
    return parser


def _step(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"must be a whole number, but it is {text!r}")
    return int(text)

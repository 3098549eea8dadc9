"""`python -m trainer.publish`: publish a run's checkpoints as versions that servers read.

    python -m trainer.publish --checkpoint DIR --out FOLDER [--step N] [--precision P] [--keep N] [--full]
    python -m trainer.publish --checkpoint DIR --out FOLDER --follow SECONDS
    python -m trainer.publish apply FOLDER OUT [--version N]

DIR and FOLDER are folders or URIs in a bucket. The first version is an export; later ones hold what changed
since. `apply` makes an export of a version. Each version, and `apply`, prints a JSON object on a line.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec_contract.settings import underscored_flags
from trainer.base.console import guarded, importing_torch
from trainer.base.errors import ConfigError
from trainer.commands.predict import CommandParser
from trainer.serving.publication.format import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.publishing.publisher import PublishReport

_APPLY = "apply"


def main(argv: Sequence[str]) -> int:
    """Publish, or apply; return the exit code of the process."""
    if argv and argv[0] == _APPLY:
        return guarded(lambda: _apply(argv[1:]))
    return guarded(lambda: _publish(argv))


def _publish(argv: Sequence[str]) -> int:
    arguments = _make_parser().parse_args(underscored_flags(argv))
    if arguments.follow is not None and arguments.step is not None:
        raise ConfigError(
            f"step is {arguments.step}, but --follow publishes each new checkpoint; leave one out"
        )
    with importing_torch():
        from trainer.publishing import follow  # noqa: PLC0415 - torch takes seconds to import
        from trainer.publishing.publisher import Publisher, PublishingOptions  # noqa: PLC0415 - as above
    options = PublishingOptions(precision=arguments.precision, keep=arguments.keep, full=arguments.full)
    publisher = Publisher(arguments.out, options)
    if arguments.follow is None:
        _tell(follow.publish_once(publisher, arguments.checkpoint, arguments.step))
        return 0
    end = follow.follow(
        publisher, arguments.checkpoint, seconds=arguments.follow, run=arguments.run, report=_tell
    )
    print(json.dumps({"end": end}), flush=True)
    return 0


def _apply(argv: Sequence[str]) -> int:
    from trainer.serving.publication.reader import PublicationReader  # noqa: PLC0415 - numpy, which --help does not need

    parser = CommandParser(
        prog="python -m trainer.publish apply",
        description="Write a published version as an export: the same bytes as `python -m trainer.export`.",
        epilog="Exit codes: 0 done, 64 bad usage, 1 anything else.",
        allow_abbrev=False,
    )
    parser.add_argument("publication", metavar="FOLDER", help="the folder or URI of the publication")
    parser.add_argument("out", metavar="OUT", help="a new or empty folder")
    parser.add_argument("--version", metavar="N", help="[the newest]")
    arguments = parser.parse_args(underscored_flags(argv))
    reader = PublicationReader(arguments.publication)
    manifest = reader.write_export(arguments.version or reader.newest(), Path(arguments.out))
    print(json.dumps({"version": manifest.name, "step": manifest.step, "precision": manifest.precision}))
    return 0


def _tell(report: PublishReport) -> None:
    print(json.dumps(report.to_json()), flush=True)


def _make_parser() -> CommandParser:
    parser = CommandParser(
        prog="python -m trainer.publish",
        description="Publish a run's checkpoint for servers, or what changed since the version before. "
        "`python -m trainer.publish apply FOLDER OUT` makes an export of a version.",
        epilog="Exit codes: 0 done, 64 bad usage, 1 anything else.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        required=True,
        help="a run's checkpoint_dir; its newest committed checkpoint is published",
    )
    parser.add_argument("--step", type=_count, metavar="N", help="the checkpoint of this step instead")
    parser.add_argument(
        "--out", metavar="FOLDER", required=True, help="the publication: a folder, or a URI in a bucket"
    )
    parser.add_argument(
        "--precision",
        choices=tuple(PRECISIONS),
        help="of the tables [as the version before; at first fp32]",
    )
    parser.add_argument(
        "--keep", type=_positive, metavar="N", help="remove versions that the N newest do not need [keep all]"
    )
    parser.add_argument(
        "--full", action="store_true", help="write a full version, beside the delta if there is one"
    )
    parser.add_argument(
        "--follow",
        type=_seconds,
        metavar="SECONDS",
        help="look for a new checkpoint so often, and publish it, until the run has finished",
    )
    parser.add_argument(
        "--run", metavar="FOLDER", help="with --follow, where the run's summary.json will be [above DIR]"
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number, but it is {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if _count(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, but it is {text}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.1 <= value <= 86_400:  # noqa: PLR2004 - a day; also False for NaN
        raise argparse.ArgumentTypeError(f"must be seconds between 0.1 and 86,400, but it is {text!r}")
    return value

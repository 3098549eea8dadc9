"""`python -m trainer.export`: write a checkpoint's model as plain files (trainer.serving.exported).

python -m trainer.export --checkpoint DIR --out FOLDER [--quantize fp16|int8|int4] [--graph] [--items DATA]
                         [--triton FOLDER]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.base.console import guarded, importing_torch
from trainer.commands.predict import CommandParser, add_model_flags

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run the export; return the exit code of the process."""
    return guarded(lambda: _main(argv))


def _main(argv: Sequence[str]) -> int:
    parser = CommandParser(
        prog="python -m trainer.export",
        description="Write a trained model as plain files: weights by table, config.json, checksums.",
        epilog="Exit codes: 0 done, 64 bad usage, 1 anything else.",
        allow_abbrev=False,
    )
    add_model_flags(parser)
    parser.add_argument("--out", metavar="FOLDER", required=True, help="a new or empty folder")
    parser.add_argument(
        "--graph",
        action="store_true",
        help="also write graph.pt2, the computation, which torch alone runs; config.json names its inputs",
    )
    parser.add_argument(
        "--items",
        metavar="DATA",
        help="of two_tower: also write the vectors of all items in a prepared dataset or in raw files, and "
        "an index of FAISS",
    )
    parser.add_argument(
        "--triton",
        metavar="FOLDER",
        help="also write the model with its tables into a model repository of Triton (TorchScript)",
    )
    arguments = parser.parse_args(argv)
    with importing_torch():
        from trainer.commands import scoring  # noqa: PLC0415 - torch takes seconds to import
        from trainer.serving import exported, graph, items, triton  # noqa: PLC0415 - torch takes seconds to import
    trained = scoring.open_model(arguments.checkpoint, arguments.step, arguments.quantize)
    parts: dict[str, exported.Part] = {"graph": graph.write_graph} if arguments.graph else {}
    if arguments.items is not None:
        found = scoring.item_vectors(trained, arguments.items)
        parts["items"] = lambda model, folder: items.write_items(model.vocabulary, folder, *found)
    written = exported.write_export(trained, Path(arguments.out), parts)
    if arguments.triton is not None:
        triton.write_repository(trained, Path(arguments.triton))
    done: dict[str, Any] = {
        "step": trained.step,
        "quantization": trained.quantization,
        "bytes": written,
        "encoding_digest": None if trained.vocabulary is None else trained.vocabulary.encoding.digest,
    }
    if trained.shape.tasks:
        done["tasks"] = list(trained.shape.tasks)  # of the columns of the model's scores
    print(json.dumps(done))
    return 0

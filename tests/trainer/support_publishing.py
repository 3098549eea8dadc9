"""Publishing and applying in tests, by the commands, and comparing folders byte for byte."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.trainer.support_dataset import Rows, write_rows
from trainer.commands import export, publish

if TYPE_CHECKING:
    from pathlib import Path

QUANTIZE = {"fp32": "none", "fp16": "fp16", "int8": "int8", "int4": "int4"}
SIZES = {"C1": 4_000, "C2": 2_500, "C3": 30}


def write_zipf(folder: Path, *, rows: int = 3_000, sizes: dict[str, int] = SIZES, seed: int = 0) -> Path:
    """Write a dataset of a few frequent and many rare ids."""
    random = np.random.default_rng(seed)

    def split(count: int) -> Rows:
        ids = [np.minimum(random.zipf(1.3, count), size) - 1 for size in sizes.values()]
        dense = random.random((count, 2), dtype=np.float32)
        labels = (ids[0] % 3 == 0).astype(np.uint8)
        return Rows(labels, dense, np.stack(ids).astype(np.int32))

    write_rows(folder, {"train": split(rows), "test": split(300)}, num_embeddings=sizes, shard_rows=5_000)
    return folder


def publishing(checkpoints: Path | str, out: Path | str, *words: object) -> dict[str, Any]:
    """Publish by the command; return what it printed."""
    code, printed, problem = command(publish.main, "--checkpoint", checkpoints, "--out", out, *words)
    assert code == 0, problem
    found: dict[str, Any] = json.loads(printed)
    return found


def command(main: Any, *words: object) -> tuple[int, str, str]:
    """Run a command here; return its exit code and what it printed on stdout and stderr."""
    out, problem = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(problem):
        code = main([str(word) for word in words])
    return code, out.getvalue(), problem.getvalue()


def digests(folder: Path) -> dict[str, str]:
    """The sha256 of every file of a folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def exported(
    checkpoints: Path | str, folder: Path, precision: str, step: int | None = None
) -> dict[str, str]:
    """Export a checkpoint; return the digests of the export's files."""
    of_step = [] if step is None else ["--step", step]
    words = ["--checkpoint", checkpoints, "--out", folder, "--quantize", QUANTIZE[precision], *of_step]
    code, _, problem = command(export.main, *words)
    assert code == 0, problem
    return digests(folder)


def applied(publication: Path | str, folder: Path, version: int | None = None) -> dict[str, str]:
    """Make an export of a version; return the digests of its files."""
    words = ["apply", publication, folder, *([] if version is None else ["--version", version])]
    code, _, problem = command(publish.main, *words)
    assert code == 0, problem
    return digests(folder)


def steps_of(checkpoints: Path) -> list[int]:
    """The steps of the checkpoints in a folder, oldest first."""
    return sorted(
        int(path.parent.name.removeprefix("step-")) for path in checkpoints.glob("step-*/commit-*.json")
    )

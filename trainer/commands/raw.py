"""Raw rows for `predict --raw`: they are encoded as the data that the model learned from.

`cloudrec data prepare` encodes them, in a separate process, so that raw and prepared rows have the same
ids by the same code. It gets the model's schema and vocabulary, which a checkpoint and an export contain.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec_contract.safe_json import safe_json, safe_object
from trainer.base.errors import DatasetError, DependencyError
from trainer.data.formats.manifest import FILE_NAME
from trainer.serving.exported import write_encoding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainer.serving.scorer import TrainedModel

_BAD_ROWS = "bad_rows.jsonl"  # beside dataset.json


@dataclass(frozen=True, slots=True)
class EncodedFiles:
    """Raw files, encoded: a dataset whose splits, one after the other, have the files' good rows in order."""

    dataset: Path
    bad_rows: tuple[int, ...]  # places among all rows of the files, ascending


@contextmanager
def encoded(trained: TrainedModel, files: Sequence[str], *, max_bad_rows: int) -> Iterator[EncodedFiles]:
    """Encode raw files into a temporary folder, which is removed at the end.

    Args:
        trained: the model whose schema and vocabulary are used.
        files: files, folders or patterns, as `data prepare` takes them; a label may be missing.
        max_bad_rows: malformed rows that may be left out.

    Raises:
        DatasetError: the model does not say how its data was encoded, or the files do not fit its schema.
        DependencyError: cloudrec's preparation is not installed.
    """
    if trained.vocabulary is None:
        raise DatasetError(
            "the model does not say how the data that it learned from was encoded, so raw rows cannot be "
            "encoded alike; prepare them as that data, and give --dataset_path"
        )
    if importlib.util.find_spec("cloudrec") is None:
        raise DependencyError("raw rows need cloudrec's preparation: pip install 'cloudrec[data]'")
    with tempfile.TemporaryDirectory(prefix="cloudrec-raw-") as name:
        model, dataset = Path(name) / "model", Path(name) / "dataset"
        model.mkdir()
        write_encoding(trained.vocabulary, model)
        _prepare([*files, str(dataset)], like=model, max_bad_rows=max_bad_rows)
        yield EncodedFiles(dataset, tuple(_bad_rows(dataset)))


def _prepare(places: Sequence[str], *, like: Path, max_bad_rows: int) -> None:
    options = ["--like", str(like), "--test-fraction", "0", "--labels", "optional", "--output", "json"]
    options += ["--max-bad-rows", str(max_bad_rows)]
    command = [sys.executable, "-P", "-m", "cloudrec", "data", "prepare", *options, "--", *places]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    if not done.returncode:
        return
    try:
        error: Any = safe_object(done.stdout)["error"]
        text = f"{error['message']}; {error['remedy']}" if error["remedy"] else str(error["message"])
    except (ValueError, KeyError, TypeError) as wrong:
        raise DatasetError(
            f"the rows cannot be encoded: `cloudrec data prepare` ended with {done.returncode}"
        ) from wrong
    raise DatasetError(text)


def _bad_rows(dataset: Path) -> Iterator[int]:
    path = dataset / _BAD_ROWS
    if not path.exists():
        return
    first, starts = 0, dict[str, int]()
    for source in safe_object((dataset / FILE_NAME).read_bytes())["sources"]:
        starts[source["path"]] = first
        first += source["rows"] + source["bad_rows"]
    for line in path.read_bytes().splitlines():
        row: Any = safe_json(line)
        yield starts[row["path"]] + row["line"] - 1

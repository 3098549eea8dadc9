"""A vocabulary is stored once beside checkpoints of any store, and a damaged one is refused."""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.trainer.support_clouds import CLOUDS, CloudPlace
from trainer.base.errors import CheckpointError
from trainer.checkpoint.store.base import open_store
from trainer.checkpoint.vocabulary import in_folder, kept_in
from trainer.data.encoding import KnownEncoding, digest_of, parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trainer.checkpoint.store.base import Store

FEATURES = ("C1", "C2")


@pytest.fixture
def encoding(tmp_path: Path) -> KnownEncoding:
    """Of two features; the folder `data` holds its files."""
    (tmp_path / "data" / "vocabulary").mkdir(parents=True)
    tables, files = [], {}
    for number, feature in enumerate(FEATURES):
        path = tmp_path / "data" / "vocabulary" / f"{feature}.npy"
        np.save(path, np.arange(number * 1000, dtype="<u4"))
        data = path.read_bytes()
        tables.append(
            {"feature": feature, "rows": 2 + number * 1000, "sha256": hashlib.sha256(data).hexdigest()}
        )
        crc32 = f"{zlib.crc32(data):08x}"
        files[feature] = {"path": f"vocabulary/{feature}.npy", "bytes": len(data), "crc32": crc32}
    mapping = {"kind": "vocabulary", "version": 1, "tables": tables}
    return parse({"digest": digest_of(mapping), "mapping": mapping, "files": files})


@pytest.fixture(params=["folder", *CLOUDS])
def store(request: pytest.FixtureRequest, tmp_path: Path, enter_cloud: Callable[[str], CloudPlace]) -> Store:
    if request.param == "folder":
        return open_store(str(tmp_path / "checkpoints"))
    return open_store(enter_cloud(request.param).new_uri())


@pytest.mark.parametrize(
    "path", ["../C1.npy", "/C1.npy", "vocabulary/../C1.npy", "vocabulary/", "config.json"]
)
def test_a_file_outside_the_folder_is_refused(encoding: KnownEncoding, path: str) -> None:
    document = json.loads(json.dumps(encoding.document))
    document["files"]["C1"]["path"] = path
    with pytest.raises(ValueError, match=f"file '{path}' is not in vocabulary/"):
        parse(document)


def test_files_beside_checkpoints_are_exported_unchanged(
    encoding: KnownEncoding, store: Store, tmp_path: Path
) -> None:
    vocabulary = in_folder(tmp_path / "data", encoding)
    vocabulary.keep_in(store)
    names = [f"vocabulary/{encoding.digest}/{feature}.npy" for feature in FEATURES]
    assert list(store.sizes()) == names
    (tmp_path / "export").mkdir()
    kept_in(store, encoding).export_to(tmp_path / "export")
    for feature in FEATURES:
        written = (tmp_path / "export/vocabulary" / f"{feature}.npy").read_bytes()
        assert written == (tmp_path / "data/vocabulary" / f"{feature}.npy").read_bytes()


def test_existing_vocabulary_files_are_not_read_again(
    encoding: KnownEncoding, store: Store, tmp_path: Path
) -> None:
    vocabulary = in_folder(tmp_path / "data", encoding)
    vocabulary.keep_in(store)
    lost = f"vocabulary/{encoding.digest}/C1.npy"
    store.remove([lost])
    (tmp_path / "data/vocabulary/C2.npy").unlink()
    vocabulary.keep_in(store)
    assert lost in store.sizes()


def test_a_file_damaged_in_the_dataset_or_beside_checkpoints_is_refused(
    encoding: KnownEncoding, store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "data/vocabulary/C2.npy"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"vocabulary/C2.npy: its sha256 is"):
        in_folder(tmp_path / "data", encoding).keep_in(store)
    name = f"vocabulary/{encoding.digest}/C2.npy"
    assert name not in store.sizes()
    with store.write(name) as file:
        file.write(good[:-1] + b"x")
    in_folder(tmp_path / "data", encoding).keep_in(store)
    (tmp_path / "export").mkdir()
    with pytest.raises(CheckpointError, match=r"C2.npy: its sha256 is"):
        kept_in(store, encoding).export_to(tmp_path / "export")

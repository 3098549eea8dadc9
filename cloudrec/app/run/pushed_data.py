"""The dataset that was pushed last to a cluster's storage, which a run without `--dataset` trains on.

A small file beside the datasets names it, so a run that is launched from another machine finds it, and it is
removed with the storage. A run that names the folder it was pushed from trains on it, too.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cloudrec.data.format import encoding as encodings
from cloudrec.data.format import manifest
from cloudrec.errors import DataError
from cloudrec.launchers.base.results_store import open_place
from cloudrec.launchers.base.runspec import is_own_trainer
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from cloudrec.app.context import AppContext
    from cloudrec.launchers.base.protocol import Launcher
    from cloudrec.launchers.base.runspec import RunSpec

FOLDER = "data"  # of the datasets, in a cluster's storage
_FILE = "pushed.json"
_SCHEMA_VERSION = 1


class Pushed(NamedTuple):
    """A dataset in a cluster's storage."""

    uri: str
    time: str  # ISO 8601
    content: str = ""  # see `content_of`; empty in notes of earlier versions


def content_of(digest: str, encoding: str) -> str:
    """Return a text that two datasets share if they have the same samples and the same encoding."""
    return f"{digest} {encoding}".strip()


def note(storage: str, uri: str, content: str) -> None:
    """Note that a dataset is complete in a cluster's storage."""
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"schema_version": _SCHEMA_VERSION, "dataset": uri, "pushed": moment, "content": content}
    open_place(f"{storage}/{FOLDER}").write(_FILE, json.dumps(document).encode())


def last(storage: str) -> Pushed | None:
    """Return the dataset that was pushed last; None if there is none, or if the note cannot be read."""
    text = open_place(f"{storage}/{FOLDER}").read(_FILE)
    try:
        document = safe_object(text or b"{}")
        return Pushed(str(document["dataset"]), str(document["pushed"]), str(document.get("content", "")))
    except (ValueError, KeyError, TypeError):
        return None


def with_dataset(app: AppContext, spec: RunSpec, launcher: Launcher) -> RunSpec:
    """Return the spec of a run with a dataset: its own, or the one that was pushed last to the cluster.

    That one also replaces the folder on this machine from which it was pushed, which nodes cannot read.

    Raises:
        DataError: it names none, and none was pushed.
        StorageError: the storage refuses.
    """
    settings = spec.trainer
    if launcher.reads_local_files or not spec.storage or not is_own_trainer(spec.trainer_command):
        return spec
    if settings.dataset_path:
        return _with_copy(app, spec, Path(settings.dataset_path))
    if settings.values.get("dataset"):
        return spec
    found = last(spec.storage)
    if found is None:
        raise DataError(
            f"the run names no dataset, and none was pushed to cluster {spec.cluster!r}",
            remedy=f"cloudrec data push data/prepared --cluster {spec.cluster}; or name one with --dataset",
        )
    app.report(f"dataset {found.uri} (the one pushed last, at {found.time})")
    return replace(spec, trainer_config={**spec.trainer_config, "dataset_path": found.uri})


def _with_copy(app: AppContext, spec: RunSpec, folder: Path) -> RunSpec:
    """Return the spec with the copy of a folder in the cluster's storage, if it was the last one pushed."""
    if not (folder / manifest.NAME).is_file():
        return spec
    content = manifest.load(folder)
    encoding = encodings.of_dataset(content, folder / manifest.NAME)
    found = last(spec.storage)
    if found is None or found.content != content_of(
        content["digest"], "" if encoding is None else encoding.digest
    ):
        return spec
    app.report(f"dataset {found.uri} (the copy of {folder}, pushed at {found.time})")
    return replace(spec, trainer_config={**spec.trainer_config, "dataset_path": found.uri})

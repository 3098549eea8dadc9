"""The driver of the storage folder. `up` marks the folder; `down` removes it only if `up` created it."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import (
    TAG_CLUSTER,
    TAG_KEY,
    Condition,
    Difference,
    ErrorVerdict,
    Observed,
    Properties,
)
from cloudrec.errors import CloudrecError, StorageError
from cloudrec.home import make_private, read_text, storage_error, write_atomically
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Resource

KIND = "storage"
MARKER = ".cloudrec-storage.json"
DATA = "data"
POINTER = "storage.json"  # the file in the cluster's folder that holds the path of its storage


@dataclass(frozen=True, kw_only=True)
class StorageProperties(Properties):
    """The requested storage folder.

    Attributes:
        path: its absolute path.
    """

    path: str


class StorageDriver:
    """The driver of the folder with a local cluster's data. Its identity is its absolute path."""

    deadline_s = 10.0
    poll_s = 0.05

    def __init__(self, clusters: Path) -> None:
        self._clusters = clusters

    def find(self, resource: Resource[StorageProperties]) -> Observed | None:
        """Return the marked folder at the path in the cluster's pointer, or else at the requested path."""
        path = _read(self._pointer(resource.name)).get("path", resource.properties.path)
        return observe(Path(path))

    def difference(self, resource: Resource[StorageProperties], observed: Observed) -> Difference | None:
        """Compare the folder's path with the requested one.

        Raises:
            StorageError: the paths differ. A new folder would not have the data of the old one.
        """
        if resource.properties.path == observed.identity:
            return None
        raise StorageError(
            f"the cluster's storage is {observed.identity}; the spec now names {resource.properties.path}",
            remedy="`cloudrec down` (with --keep-data to keep what is there), then `cloudrec up` again",
        )

    def create(
        self, resource: Resource[StorageProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create and mark the folder; an existing folder is used, and `down` does not remove it."""
        del token, identities  # idempotent: the folder has a fixed path
        path = Path(resource.properties.path)
        # The pointer is written first: after a crash, `search` finds the incomplete folder through it.
        make_private(self._pointer(resource.name).parent)
        write_atomically(self._pointer(resource.name), json.dumps({"path": str(path)}))
        marker = {"tags": dict(resource.tags), "name": resource.name, "made": not path.exists()}
        if marker["made"]:
            draft = _draft(path)
            # A rename makes the folder appear with its mark. Without it, a crash could leave an unmarked
            # folder, which the next `up` would take for the user's.
            shutil.rmtree(draft, ignore_errors=True)
            make_private(draft / DATA)
            write_atomically(draft / MARKER, json.dumps(marker))
            _rename(draft, path)
        else:
            make_private(path / DATA)
            write_atomically(path / MARKER, json.dumps(marker))
        return str(path)

    def change(
        self, resource: Resource[StorageProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Do nothing: a folder has no property that changes in place."""

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return READY if the marked folder exists, else GONE."""
        del kind
        return (Condition.READY if (Path(identity) / MARKER).exists() else Condition.GONE), ""

    def delete(self, observed: Observed) -> None:
        """Remove the folder if `up` created it; else remove the mark, and the data folder if it is empty."""
        path = Path(observed.identity)
        try:
            if _read(path / MARKER).get("made"):
                # Atomic: after a crash there is either the whole folder, or a draft that is found by its
                # name.
                path.rename(_draft(path))
            elif path.is_dir():
                remove_if_empty(path / DATA)
                (path / MARKER).unlink(missing_ok=True)
            if _draft(path).exists():
                shutil.rmtree(_draft(path))
        except OSError as error:
            raise storage_error(path, error) from error
        # Only cloudrec writes into the cluster's folder: other files in it are temporary ones of a crash.
        shutil.rmtree(self._clusters / observed.name, ignore_errors=True)

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return FATAL: errors of the local disk are not transient."""
        del error
        return ErrorVerdict.FATAL

    def explain(self, error: Exception) -> CloudrecError:
        """Return the error as a CloudrecError."""
        return explain(error)

    def _pointer(self, cluster: str) -> Path:
        return self._clusters / cluster / POINTER


def explain(error: Exception) -> CloudrecError:
    """Return an unexpected error as a CloudrecError with its type and message."""
    return CloudrecError(f"{type(error).__name__}: {error}")


def remove_if_empty(folder: Path) -> None:
    """Remove a folder if it exists and is empty."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def observe(path: Path) -> Observed | None:
    """Return the marked folder at this path; None if there is none, or it has no mark of cloudrec."""
    marker = _read(path / MARKER)
    if not marker:
        return None
    return Observed(
        kind=KIND,
        name=marker["name"],
        identity=str(path),
        condition=Condition.READY,
        properties={"path": str(path)},
        tags=marker["tags"],
        holds_data=True,
        hourly_usd=FREE,
    )


def pointed_at(cluster_folder: Path) -> Observed | None:
    """Return the storage of a cluster; PENDING if a crash left it incomplete; None for an unknown cluster."""
    if not cluster_folder.is_dir():
        return None
    path = _read(cluster_folder / POINTER).get("path", str(default_path(cluster_folder)))
    return observe(Path(path)) or Observed(
        kind=KIND,
        name=cluster_folder.name,
        identity=str(path),
        condition=Condition.PENDING,
        tags={TAG_CLUSTER: cluster_folder.name, TAG_KEY: f"{KIND}/{cluster_folder.name}"},
        holds_data=True,
        hourly_usd=FREE,
    )


def default_path(cluster_folder: Path) -> Path:
    """Return the storage folder of a cluster whose spec names none."""
    return cluster_folder / "storage"


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.cloudrec-draft")


def _rename(draft: Path, path: Path) -> None:
    try:
        draft.rename(path)
    except OSError as error:
        raise storage_error(path, error) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return safe_object(read_text(path))
    except (OSError, ValueError):
        return {}

"""The storage folder: made if absent, marked as ours, and removed only as far as we made it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Difference, Observed, Verdict
from cloudrec.errors import CloudrecError, StorageError
from cloudrec.home import make_private, storage_error, write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Resource

KIND = "storage"
MARKER = ".cloudrec-storage.json"
DATA = "data"
POINTER = "storage.json"  # in the cluster's folder: where its storage is


class StorageDriver:
    """Handles the folder that holds a local cluster's data. Its identity is its absolute path."""

    deadline_s = 10.0
    poll_s = 0.05

    def __init__(self, clusters: Path) -> None:
        self._clusters = clusters

    def find(self, resource: Resource) -> Observed | None:
        """Look the folder up through the pointer that the cluster keeps, then at the path asked for."""
        path = _read(self._pointer(resource.name)).get("path", resource.properties["path"])
        return observe(Path(path))

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Compare the folder's place; a move would leave data behind, so it is refused with the remedy."""
        if resource.properties["path"] == observed.identity:
            return None
        raise StorageError(
            f"the cluster's storage is {observed.identity}; the spec now names {resource.properties['path']}",
            remedy="`cloudrec down` (with --keep-data to keep what is there), then `cloudrec up` again",
        )

    def create(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Make the folder, whole or not at all; one that is there is used, and never removed."""
        del token, identities  # a folder is its own idempotency token
        path = Path(resource.properties["path"])
        make_private(self._pointer(resource.name).parent)
        write_atomically(self._pointer(resource.name), json.dumps({"path": str(path)}))
        marker = {"tags": dict(resource.tags), "name": resource.name, "made": not path.exists()}
        if marker["made"]:
            draft = _draft(path)
            shutil.rmtree(draft, ignore_errors=True)  # a crash's, or the target of a rename would not be free
            make_private(draft / DATA)
            write_atomically(draft / MARKER, json.dumps(marker))
            _rename(draft, path)
        else:
            make_private(path / DATA)
            write_atomically(path / MARKER, json.dumps(marker))
        return str(path)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Nothing of a folder changes in place."""

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Tell whether the marked folder is there."""
        del kind
        return (Condition.READY if (Path(identity) / MARKER).exists() else Condition.GONE), ""

    def delete(self, observed: Observed) -> None:
        """Remove the folder when we made it; else only the marker, and our data folder when it is empty."""
        path = Path(observed.identity)
        try:
            if _read(path / MARKER).get("made"):
                path.rename(
                    _draft(path)
                )  # at once: a crash leaves it whole, or a draft that is found by name
            elif path.is_dir():
                remove_if_empty(path / DATA)
                (path / MARKER).unlink(missing_ok=True)
            if _draft(path).exists():
                shutil.rmtree(_draft(path))
        except OSError as error:
            raise storage_error(path, error) from error
        # Wholly ours: what else is in it is what a crash in the middle of a write left.
        shutil.rmtree(self._clusters / observed.name, ignore_errors=True)

    def verdict(self, error: Exception) -> Verdict:
        """A disk that refuses once refuses again."""
        del error
        return Verdict.FATAL

    def explain(self, error: Exception) -> CloudrecError:
        """Say what went wrong."""
        return explain(error)

    def _pointer(self, cluster: str) -> Path:
        return self._clusters / cluster / POINTER


def explain(error: Exception) -> CloudrecError:
    """Say what an error that no driver foresaw was."""
    return CloudrecError(f"{type(error).__name__}: {error}")


def remove_if_empty(folder: Path) -> None:
    """Remove the cluster's folder with the last thing in it."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def observe(path: Path) -> Observed | None:
    """Describe the marked folder at this path; None where there is none of ours."""
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
    )


def pointed_at(cluster_folder: Path) -> Observed | None:
    """Describe the storage that a cluster's folder points at, also one that a crash left half made."""
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
    )


def default_path(cluster_folder: Path) -> Path:
    """Return where a cluster's data goes when the spec names no other place."""
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
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}

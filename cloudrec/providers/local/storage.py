"""The storage folder: made if absent, marked as ours, and removed only as far as we made it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import Condition, Difference, Observed, Verdict
from cloudrec.errors import StorageError
from cloudrec.home import make_private, storage_error, write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Resource

KIND = "storage"
MARKER = ".cloudrec-storage.json"
DATA = "data"


class StorageDriver:
    """Handles the folder that holds a local cluster's data. Its identity is its absolute path."""

    deadline_s = 10.0

    def __init__(self, clusters: Path) -> None:
        self._clusters = clusters

    def find(self, resource: Resource) -> Observed | None:
        """Look the folder up through the pointer that the cluster keeps, then at the path asked for."""
        pointer = self._pointer(resource.name)
        path = _read(pointer).get("path", resource.properties["path"])
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
        """Make the folder and mark it; an existing folder is used, and never removed."""
        del token, identities  # a folder is its own idempotency token
        path = Path(resource.properties["path"])
        made = not path.exists()
        make_private(self._pointer(resource.name).parent)
        write_atomically(self._pointer(resource.name), json.dumps({"path": str(path)}))
        make_private(path)
        write_atomically(
            path / MARKER, json.dumps({"tags": dict(resource.tags), "made": made, "name": resource.name})
        )
        make_private(path / DATA)
        return str(path)

    def change(self, resource: Resource, observed: Observed) -> None:
        """Nothing of a folder changes in place."""

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Tell whether the marked folder is there."""
        del kind
        return (Condition.READY if (Path(identity) / MARKER).exists() else Condition.GONE), ""

    def delete(self, observed: Observed) -> None:
        """Remove the folder when we made it; else only our own data folder and the marker in it."""
        path = Path(observed.identity)
        try:
            if _read(path / MARKER).get("made"):
                shutil.rmtree(path, ignore_errors=False)
            else:
                if (path / DATA).is_dir() and not any((path / DATA).iterdir()):
                    (path / DATA).rmdir()
                (path / MARKER).unlink(missing_ok=True)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error(path, error) from error
        self._pointer(observed.name).unlink(missing_ok=True)

    def verdict(self, error: Exception) -> Verdict:
        """A disk that refuses once refuses again."""
        del error
        return Verdict.FATAL

    def _pointer(self, cluster: str) -> Path:
        return self._clusters / cluster / "storage.json"


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
    """Describe the storage that a cluster's folder points at; None when there is none."""
    path = _read(cluster_folder / "storage.json").get("path")
    return observe(Path(path)) if path else None


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}

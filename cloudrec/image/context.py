"""The build context of an image: a checkout, or a folder with a wheel of the installed cloudrec.

An installed cloudrec is packed into a wheel again, so that the image has the same code as the program that
launches it.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
import zipfile
from contextlib import contextmanager
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec import version
from cloudrec.errors import PreflightError
from cloudrec.home import storage_error

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCKERFILE = "Dockerfile"
_SHIPPED = (DOCKERFILE, "constraints.txt")
_CHECKOUT = (*_SHIPPED, "pyproject.toml")
# Files that an installer adds, which describe the installation and not the package.
_NOT_PACKED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


@contextmanager
def build_context(folder: Path | None = None) -> Iterator[Path]:
    """Yield the build context; a temporary one is removed afterwards.

    Args:
        folder: a checkout that the user names; None for the checkout of this program, or a temporary folder.

    Raises:
        PreflightError: the folder is no checkout, or the installed files are not found.
        StorageError: the disk has no space for the temporary folder.
    """
    found = folder or Path(version.__file__).parents[1]
    if all((found / name).is_file() for name in _CHECKOUT):
        yield found
        return
    if folder is not None:
        missing = next(name for name in _CHECKOUT if not (folder / name).is_file())
        raise PreflightError(
            f"{folder} is no checkout of cloudrec: it has no {missing}",
            remedy="name the repository's root, or leave --context out to build from the installed cloudrec",
        )
    with tempfile.TemporaryDirectory(prefix="cloudrec-image-") as made:
        try:
            _fill(Path(made))
        except OSError as error:
            raise storage_error(Path(made), error) from error
        yield Path(made)


def _fill(folder: Path) -> None:
    files = resources.files("cloudrec.image") / "files"
    for name in _SHIPPED:
        source = files / name
        if not source.is_file():
            raise _unpackable(f"it was installed without its {name}")
        (folder / name).write_bytes(source.read_bytes())
    pack(folder)


def pack(folder: Path) -> Path:
    """Pack the installed cloudrec into a wheel; return its path. PreflightError if its files are unknown."""
    try:
        distribution = metadata.distribution("cloudrec")
    except metadata.PackageNotFoundError:
        raise _unpackable("it is not installed as a package") from None
    files = [file for file in distribution.files or () if _is_packed(file)]
    name = f"cloudrec-{distribution.version}"
    if not any(file.parts[0] == "trainer" for file in files):
        raise _unpackable("its record names no trainer, as after an editable install")
    wheel = folder / f"{name}-py3-none-any.whl"
    rows = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as target:
        for file in files:
            content = Path(str(file.locate())).read_bytes()
            target.writestr(file.as_posix(), content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append(f"{file.as_posix()},sha256={digest},{len(content)}")
        record = f"{name}.dist-info/RECORD"
        target.writestr(record, "\n".join([*rows, f"{record},,", ""]))
    return wheel


def _is_packed(file: metadata.PackagePath) -> bool:
    installed = file.parts[0].endswith(".dist-info") and file.name in _NOT_PACKED
    return not installed and file.parts[0] != ".." and file.suffix != ".pyc"


def _unpackable(why: str) -> PreflightError:
    return PreflightError(
        f"this cloudrec cannot be put into an image: {why}",
        remedy="clone the repository and name it with --context, or pip install cloudrec again",
    )

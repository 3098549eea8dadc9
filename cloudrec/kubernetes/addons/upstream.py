"""Downloads upstream releases, checks their digests, and reads their objects."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import yaml

from cloudrec.errors import PreflightError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.kubernetes.addons.table import Addon, Release

_TIMEOUT_S = 60.0
_BUILD_TIMEOUT_S = 120.0
_LARGEST = 64 << 20  # the largest of these archives has 30 MB
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
# Errors that PyYAML does not convert. The digest of a release is known, so its YAML needs no further limits.
_UNFIT = (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def objects_of(addon: Addon, *, sha256: str = "") -> tuple[list[dict[str, Any]], str]:
    """Download a release; return its objects, and the sha256 digest of the downloaded file.

    Args:
        addon: an add-on with a release.
        sha256: the digest that the file must have; empty for that of the table.

    Raises:
        PreflightError: the file cannot be downloaded or read, or its digest is unknown or differs; the
            message has the digest of the downloaded file.
    """
    release = addon.release
    if release is None:
        raise ValueError(f"{addon.name} has no release")
    content = fetch(release.url)
    found = _checked(addon, release, content, sha256.removeprefix("sha256:").lower())
    try:
        objects = list(_objects(release, content))
    except (tarfile.TarError, EOFError, yaml.YAMLError, LookupError, *_UNFIT) as error:
        raise PreflightError(
            f"{addon.name} {addon.version}: {release.url} has no readable objects of Kubernetes: {error}"
        ) from error
    return [_pinned(each, release.images) for each in objects], found


def fetch(url: str) -> bytes:
    """Return the content of an https URL; PreflightError if it cannot be downloaded."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise PreflightError(f"{url} is not an https URL, so its content could come from any server")
    request = Request(url, headers={"User-Agent": "cloudrec"})  # noqa: S310 - the scheme is checked above
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - likewise
            content: bytes = answer.read(_LARGEST + 1)  # one byte more shows that the limit is exceeded
    except HTTPError as error:
        with error:
            raise PreflightError(
                f"{url}: {error.code} {error.reason}",
                remedy="the release may have been moved; see the project's page",
            ) from error
    except (URLError, OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise PreflightError(
            f"{url} cannot be fetched: {reason}",
            remedy="check the network, and HTTPS_PROXY if there is a proxy; or install it in another way",
        ) from error
    if len(content) > _LARGEST:
        raise PreflightError(f"{url} has more than {_LARGEST >> 20} MiB, the limit for a release")
    return content


def _checked(addon: Addon, release: Release, content: bytes, given: str) -> str:
    found = hashlib.sha256(content).hexdigest()
    wanted = given or release.sha256
    if not wanted:
        raise PreflightError(
            f"{addon.name} {addon.version}: the sha256 digest of {release.url} is unknown; the downloaded "
            f"file has sha256 {found}",
            remedy="compare it with the digest that the project publishes, or download it in another network "
            f"too; then give it: --sha256 {found}",
        )
    if found != wanted:
        raise PreflightError(
            f"{addon.name} {addon.version}: {release.url} has sha256 {found}, and {wanted} was expected",
            remedy="nothing was installed; find out why the file changed before you give another --sha256",
        )
    return found


def _objects(release: Release, content: bytes) -> Iterator[dict[str, Any]]:
    if release.manifest:
        yield from _parsed(content)
        return
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        if release.files:
            for name in release.files:
                yield from _parsed(_file(archive, name))
        else:
            yield from _built(archive, release)


def _parsed(text: bytes) -> Iterator[dict[str, Any]]:
    for document in yaml.load_all(text.decode("utf-8"), Loader=_LOADER):  # noqa: TID251 - a file whose sha256 is shipped
        if document is None:
            continue
        if not isinstance(document, dict) or not {"apiVersion", "kind", "metadata"} <= document.keys():
            raise KeyError("a document that is no object of Kubernetes")
        yield document


def _file(archive: tarfile.TarFile, name: str) -> bytes:
    """Return a file by its path below the archive's single top folder; KeyError if it is missing."""
    for member in archive:
        if str(PurePosixPath(*PurePosixPath(member.name).parts[1:])) == name and member.isfile():
            opened = archive.extractfile(member)
            if opened is not None:
                return opened.read()
    raise KeyError(f"no file {name}")


def _built(archive: tarfile.TarFile, release: Release) -> Iterator[dict[str, Any]]:
    command = _kustomize()
    with tempfile.TemporaryDirectory(prefix="cloudrec-addon-") as place:
        # The filter refuses absolute paths, links out of the folder, and devices.
        archive.extractall(place, filter="data")
        folders = [each for each in Path(place).iterdir() if each.is_dir()]
        folder = folders[0] / release.folder if len(folders) == 1 else None
        if folder is None or not (folder.is_dir() or release.kustomization):
            raise KeyError(f"no folder {release.folder}")
        if release.kustomization:
            folder.mkdir(exist_ok=True)
            text = yaml.safe_dump(release.kustomization, sort_keys=False)
            (folder / "kustomization.yaml").write_text(text, encoding="utf-8")
        done = subprocess.run(
            [*command, str(folder)], capture_output=True, check=False, timeout=_BUILD_TIMEOUT_S
        )
    if done.returncode:
        raise PreflightError(
            f"{command[0]} cannot build {release.folder} of {release.url}: "
            f"{done.stderr.decode('utf-8', 'replace').strip()[-400:]}"
        )
    yield from _parsed(done.stdout)


def _kustomize() -> list[str]:
    for name, arguments in (("kustomize", ["build"]), ("kubectl", ["kustomize"])):
        if found := shutil.which(name):
            return [found, *arguments]
    raise PreflightError(
        "this release is built by kustomize, and neither kustomize nor kubectl is installed",
        remedy="install kubectl: https://kubernetes.io/docs/tasks/tools",
    )


def _pinned(value: Any, tags: dict[str, str]) -> Any:  # noqa: ANN401 - a tree of JSON
    """Return a manifest, or a part of one, with these tags for the images of these repositories."""
    if isinstance(value, list):
        return [_pinned(each, tags) for each in value]
    if not isinstance(value, dict):
        return value
    made = {key: _pinned(each, tags) for key, each in value.items()}
    image = made.get("image")
    if isinstance(image, str) and (tag := tags.get(image.partition("@")[0].rpartition(":")[0] or image)):
        made["image"] = f"{image.partition('@')[0].rpartition(':')[0] or image}:{tag}"
    return made

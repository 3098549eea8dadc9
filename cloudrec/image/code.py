"""The code of the running cloudrec as an object of a cluster, for pods whose image has Python alone.

`bootstrap.py` unpacks it. The object is a ConfigMap rather than files in the bucket: pods have no right to
change it, whereas they may write to the bucket; the guard, which may not read the bucket, gets it in the same
way; and the kubelet mounts it before anything is installed. Its name contains the digest of its content, and
it is immutable, so each pod of a run has the same bytes, and a cluster has one for each version of the code.
"""

from __future__ import annotations

import bz2
import io
import tarfile
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec import version
from cloudrec.errors import PreflightError
from cloudrec.image.bootstrap import CODE, LOCK, SCRIPT, digest_of
from cloudrec.kubernetes.client.errors import ConflictError
from cloudrec.kubernetes.manifests.names import ROLE, cluster_labels
from cloudrec.kubernetes.manifests.setup import code_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.target import ClusterTarget

ROLE_CODE = "code"
_PACKAGES = ("cloudrec", "cloudrec_contract", "templates", "trainer")
_LEFT_OUT = ("Dockerfile", "constraints.txt")  # of a build
# The rooms of commands: what runs in pods, the agent and the keeper, is below them in the layers of imports.
_ROOMS = (
    *("cloudrec/app", "cloudrec/cli", "cloudrec/client", "cloudrec/data", "cloudrec/__main__.py"),
    *("cloudrec/observe/page", "cloudrec/torchx.py", "templates/page"),
    *("cloudrec/launchers/slurm", "cloudrec/planning/fit", "templates/slurm", "templates/specs"),
    *(f"cloudrec/planning/spot/{name}.py" for name in ("compare", "references", "simulate", "traces")),
    *("cloudrec/kubernetes/addons", "cloudrec/kubernetes/health/health.py", "templates/k8s/addons"),
    *("trainer/calibrate.py", "trainer/commands/calibrate.py"),
    *(f"cloudrec/image/{name}.py" for name in ("builders", "context", "running", "sbom", "stages", "work")),
    *("cloudrec/sandbox", "cloudrec/image/files"),  # pods get the list of packages beside the archive
)
# The limit of a ConfigMap is 1 MiB of data (kubernetes.io, "ConfigMaps"); etcd's for a request is 1.5 MiB.
_LIMIT = 1024 * 1024
_REMEDY = "build an image instead: cloudrec image build && cloudrec image push"


@dataclass(frozen=True, kw_only=True)
class Code:
    """The files for pods.

    Attributes:
        files: their bytes by name.
        digest: the SHA-256 of all of them.
    """

    files: Mapping[str, bytes]
    digest: str

    def manifest(self, target: ClusterTarget, *, cluster: str, owner: str) -> dict[str, Any]:
        """Return the ConfigMap with the files."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": code_name(self.digest),
                "namespace": target.namespace,
                "labels": {**cluster_labels(cluster, owner), ROLE: ROLE_CODE},
            },
            "immutable": True,
            "binaryData": {name: b64encode(data).decode() for name, data in self.files.items()},
        }


@cache
def current() -> Code:
    """Return the code of this process.

    Raises:
        PreflightError: a package is missing, or the code is larger than a ConfigMap may be.
    """
    files = resources.files("cloudrec.image")
    content = {
        SCRIPT: (files / SCRIPT).read_bytes(),
        LOCK: (files / "files" / LOCK).read_bytes(),
        CODE: packed(Path(version.__file__).parents[1]),
    }
    size = sum(map(len, content.values()))
    if size > _LIMIT:
        raise PreflightError(
            f"the code of cloudrec has {size:,} bytes in compressed form; a ConfigMap may have {_LIMIT:,}",
            remedy=_REMEDY,
        )
    return Code(files=content, digest=digest_of(content.items()))


def packed(root: Path) -> bytes:
    """Return the packages below a folder as an archive whose bytes depend on their content only."""
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for package in _PACKAGES:
            if not (root / package).is_dir():
                raise PreflightError(
                    f"there is no package {package} beside cloudrec in {root}", remedy=_REMEDY
                )
            for path in _files(root / package):
                name = path.relative_to(root).as_posix()
                if name.startswith(_ROOMS):
                    continue
                data = path.read_bytes()
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(data), 0o644
                archive.addfile(entry, io.BytesIO(data))
    return bz2.compress(text.getvalue())  # a quarter smaller than gzip's, and 20 times as fast as xz's


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        is_left_out = path.name in _LEFT_OUT or path.suffix == ".pyc"
        if path.is_file() and not is_left_out and not any(part.startswith(".") for part in path.parts[-2:]):
            yield path


def deliver(kube: Kube, target: ClusterTarget, digest: str, *, cluster: str, owner: str) -> None:
    """Make sure that a cluster has the code with this digest.

    Raises:
        PreflightError: it has not, and this process is of another version.
    """
    if kube.get("ConfigMap", code_name(digest), namespace=target.namespace) is not None:
        return
    code = current()
    if code.digest != digest:
        raise PreflightError(
            f"the run was launched with another version of cloudrec ({digest[:12]}; this is "
            f"{code.digest[:12]}), and its code is no longer in the cluster",
            remedy="use that version, or launch a new run with the checkpoints of this one",
        )
    try:
        kube.create(code.manifest(target, cluster=cluster, owner=owner))
    except ConflictError:  # another process has just created it
        return

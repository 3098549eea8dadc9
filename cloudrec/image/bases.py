"""The image of pods if none was pushed: a publisher's image with Python, in which pods install the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError
from cloudrec.image.code import current
from cloudrec.kubernetes.client.target import PodSetup
from cloudrec.providers.base.facts import PLAIN_IMAGE, fabric_of
from cloudrec_contract.objectstore.schemes import folder_of, kinds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec.kubernetes.client.target import ClusterTarget

# Python's official image, 3.12.14 on Debian bookworm, by the digest of its index of platforms. It has a C
# compiler, for the table kernels, and wget, for the probes of KubeRay.
PYTHON = (
    "docker.io/library/python:3.12.14-bookworm"
    "@sha256:dbbe4ceb97851e2e5fa83798b239811f871cb743b259ba3563737349f6bcfaa0"
)
BASE, TRAINER = ("base", "kubernetes"), ("trainer", "parquet")


def base_for(target: ClusterTarget, cluster: str, *, wanted: str | None, allow_tcp: bool) -> str:
    """Return the base image for the trainer on a cluster's nodes.

    Args:
        target: the cluster.
        cluster: its name, for the message.
        wanted: the image that the cluster's spec names; None for the default.
        allow_tcp: whether the run may do without the fabric.

    Raises:
        PreflightError: the nodes' fabric needs libraries, and no published image with them is known. Without
            them the run would train over TCP.
    """
    if wanted:
        return wanted
    fabric = fabric_of(target.fabric)
    if fabric is None or fabric.base_image == PLAIN_IMAGE:
        return PYTHON
    if not fabric.base_image and not allow_tcp:
        build = f"cloudrec image build --fabric {fabric.image} && cloudrec image push --cluster {cluster}"
        raise PreflightError(
            f"the nodes of cluster {cluster!r} use {fabric.name}, and cloudrec knows no published image with "
            "its libraries",
            remedy=f"{build}; or name an image with the trainer and them: --image REFERENCE",
        )
    return fabric.base_image or PYTHON


def setup_for(parts: Iterable[str], *, uris: Iterable[str], extra: str, index: str | None) -> PodSetup:
    """Return what pods install.

    Args:
        parts: the parts of the lock besides those of the stores.
        uris: the data and the results; the clients of their stores are installed.
        extra: the extra of the cluster's cloud; empty for none.
        index: URL of the package index; None for pip's default.

    Raises:
        PreflightError: the code cannot be delivered.
    """
    stores = (kinds()[folder_of(uri)].extra for uri in uris if uri)
    extras = dict.fromkeys([*parts, *stores, extra])
    return PodSetup(digest=current().digest, extras=tuple(each for each in extras if each), index=index or "")

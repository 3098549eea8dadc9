"""Building the image, and pushing it."""

from __future__ import annotations

import json
import platform
import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec import __version__
from cloudrec.errors import CloudrecError, UsageError
from cloudrec.image import builders
from cloudrec.image.builders import BuildOrder, Command
from cloudrec.image.context import DOCKERFILE, build_context
from cloudrec.image.records import BuiltImage, PushedImage, note_built, note_pushed
from cloudrec.image.running import run
from cloudrec.image.stages import needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cloudrec.home import Home
    from cloudrec.image.builders import Builder
    from cloudrec.provider import Registry

FABRICS = ("plain", "efa", "ib", "gcp")
_NODES = "linux/amd64"  # what all GPU nodes of the three clouds that we know are
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

# A cluster's fabric -> the image that serves it; any image serves a network without one.
_FOR_FABRIC: Mapping[str, str] = {"efa": "efa", "infiniband": "ib", "tcpx": "gcp", "tcpxo": "gcp"}


@dataclass(frozen=True, kw_only=True)
class BuildWish:
    """What the user asks for.

    Attributes:
        fabric: the Dockerfile's target, one of FABRICS.
        device: cuda or cpu.
        name: what the image is to be called; made from version, fabric and device when None.
        base: the base image; the Dockerfile's own when None.
        context: a checkout; found when None.
        pip_conf: pip's configuration for the build alone.
        platform: as linux/arm64; that of the clouds' GPU nodes when None.
        flags: more flags for the builder.
    """

    fabric: str
    device: str
    name: str | None = None
    base: str | None = None
    context: Path | None = None
    pip_conf: Path | None = None
    platform: str | None = None
    flags: Sequence[str] = ()

    @property
    def tag(self) -> str:
        """The image's name here."""
        device = "-cpu" if self.device == "cpu" else ""
        return self.name or f"cloudrec:{__version__}-{self.fabric}{device}"


def build(
    home: Home,
    wish: BuildWish,
    builder: Builder,
    *,
    decide: Callable[[Command], bool],
    report: Callable[[str], None],
) -> BuiltImage | None:
    """Build an image and remember it; None where `decide`, which is shown the call, said no.

    Raises:
        PreflightError: there is nothing to build from.
        StorageError: the disk is full, or the network does not answer.
        CloudrecError: the build failed; its last lines are told.
    """
    with build_context(wish.context) as folder, _dockerfile(folder, wish.fabric, builder) as file:
        command = builder.build(_order(wish, folder, file))
        if not decide(command):
            return None
        run(command, what="building the image", report=report)
    image = BuiltImage(
        name=wish.tag,
        fabric=wish.fabric,
        device=wish.device,
        version=__version__,
        builder=builder.name,
        built=_now(),
    )
    note_built(home, image)
    return image


@contextmanager
def _dockerfile(folder: Path, target: str, builder: Builder) -> Iterator[Path]:
    """Yield the context's Dockerfile, or one without the stages that the target does not need."""
    if not builder.builds_unused:
        yield folder / DOCKERFILE
        return
    with tempfile.TemporaryDirectory(prefix="cloudrec-dockerfile-") as made:
        file = Path(made) / DOCKERFILE
        file.write_text(needed((folder / DOCKERFILE).read_text(encoding="utf-8"), target), encoding="utf-8")
        yield file


def _order(wish: BuildWish, folder: Path, dockerfile: Path) -> BuildOrder:
    base = {"BASE": wish.base} if wish.base else {}
    foreign = platform.machine().lower() not in {"x86_64", "amd64"}
    return BuildOrder(
        context=folder,
        dockerfile=dockerfile,
        target=wish.fabric,
        name=wish.tag,
        arguments={"DEVICE": wish.device, "VERSION": __version__, **base},
        pip_conf=wish.pip_conf,
        platform=wish.platform or (_NODES if foreign else ""),
        flags=wish.flags,
    )


def push(
    home: Home,
    image: BuiltImage,
    registry: Registry,
    *,
    cluster: str,
    tag: str | None,
    report: Callable[[str], None],
) -> PushedImage:
    """Push an image, by the program that built it, and remember its digest.

    Args:
        home: where cloudrec keeps what it knows.
        image: the image.
        registry: where to, and how to log in there.
        cluster: whose registry it is; empty for one that the user named.
        tag: what to call it there; its name's tag and the time when None, so that no tag is taken.
        report: is told of every line that the program prints.

    Raises:
        PreflightError: the registry refuses, or has no such repository.
        StorageError: the network does not answer.
    """
    builder = builders.find(image.builder)
    tag = tag or destination_tag(image)
    with tempfile.TemporaryDirectory(prefix="cloudrec-login-") as made:  # nobody else may read it
        folder = Path(made)
        if registry.username:
            login = builder.login(registry.address, registry.username, folder)
            run(login, what=f"logging in to {registry.address}", secret=registry.password)
        own = not registry.username
        said = ""
        for command in builder.push(image.name, f"{registry.repository}:{tag}", folder, own_login=own):
            said = run(command, what=f"pushing {image.name} to {registry.repository}", report=report)
        digest = _digest(folder / "digest", said, registry.repository)
    pushed = PushedImage(
        repository=registry.repository,
        digest=digest,
        tag=tag,
        fabric=image.fabric,
        device=image.device,
        version=image.version,
        cluster=cluster,
        pushed=_now(),
    )
    note_pushed(home, pushed)
    return pushed


def check_fit(image: BuiltImage, fabric: str, cluster: str) -> None:
    """Refuse an image without what a cluster's nodes talk by: it would train over TCP, or not at all.

    Args:
        image: the image.
        fabric: how GPUs of the cluster's nodes talk, as its access tells.
        cluster: the cluster's name, for the message.
    """
    wanted = _FOR_FABRIC.get(fabric, image.fabric)
    if wanted != image.fabric:
        raise UsageError(
            f"the nodes of cluster {cluster!r} talk by {fabric}, {image.name} is built for {image.fabric}",
            remedy=f"cloudrec image build --fabric {wanted}",
        )


def destination_tag(image: BuiltImage) -> str:
    """Return a tag that tells what it is and when it was built: registries with fixed tags take it too."""
    moment = re.sub(r"[^0-9]", "", image.built)[:14]
    return f"{image.name.rpartition(':')[2]}-{moment}"


def _digest(file: Path, said: str, repository: str) -> str:
    """Return the digest that the builder left in a file, or told as one of the image's names."""
    if file.is_file():
        found = _DIGEST.search(file.read_text(encoding="ascii", errors="replace"))
    else:
        names = [name for name in json.loads(said or "[]") if name.partition("@")[0] == repository]
        found = _DIGEST.search(names[-1]) if names else None
    if found is None:
        raise CloudrecError("the image was pushed, but its digest was not told", remedy="push it again")
    return found[0]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

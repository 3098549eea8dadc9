"""Builds the image, and pushes it."""

from __future__ import annotations

import platform
import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, UsageError
from cloudrec.image import builders
from cloudrec.image.builders import BuildCommand, BuildOrder
from cloudrec.image.context import DOCKERFILE, build_context
from cloudrec.image.records import BuiltImage, PushedImage, note_built, note_pushed
from cloudrec.image.running import run
from cloudrec.image.stages import needed
from cloudrec.providers.base.facts import fabric_of
from cloudrec.version import __version__
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cloudrec.home import Home
    from cloudrec.image.builders import Builder
    from cloudrec.providers.base.protocol import Registry

_NODES = "linux/amd64"  # the GPU nodes of all known clouds
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class BuildWish:
    """The user's options for a build.

    Attributes:
        fabric: the Dockerfile's target, one of `image_targets()`.
        device: cuda or cpu.
        name: the image's name; None for one of version, fabric and device.
        base: the base image; None for the Dockerfile's default.
        context: a checkout; None to use the cloudrec that runs.
        pip_conf: pip's configuration for the build; None for pip's default.
        platform: as linux/arm64; None for that of the clouds' GPU nodes.
        flags: further flags for the builder.
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
        """The image's name on this machine."""
        device = "-cpu" if self.device == "cpu" else ""
        return self.name or f"cloudrec:{__version__}-{self.fabric}{device}"


def build(
    home: Home,
    wish: BuildWish,
    builder: Builder,
    *,
    decide: Callable[[BuildCommand], bool],
    report: Callable[[str], None],
) -> BuiltImage | None:
    """Build an image and record it; return None if `decide`, which gets the call, returns False.

    Raises:
        PreflightError: there is no checkout and no installed package to build from.
        StorageError: the disk is full, or a server does not answer.
        CloudrecError: the build failed; the message has its last lines.
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
    # An image of this machine's processor would not run on the nodes.
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
    """Push an image, with the program that built it, and record its digest.

    Args:
        home: CLOUDREC_HOME.
        image: the image.
        registry: the repository, and the login for its registry.
        cluster: the cluster of the registry; empty for one that the user named.
        tag: the tag in the repository; None for the image's tag with the time of its build.
        report: receives every line that the program prints.

    Raises:
        PreflightError: the registry refuses, or has no such repository.
        StorageError: a server does not answer.
    """
    builder = builders.find(image.builder)
    tag = tag or destination_tag(image)
    with tempfile.TemporaryDirectory(prefix="cloudrec-login-") as made:  # no one else may read it
        folder = Path(made)
        if registry.username:
            login = builder.login(registry.address, registry.username, folder)
            run(login, what=f"logging in to {registry.address}", secret=registry.password)
        own = not registry.username
        output = ""
        for command in builder.push(image.name, f"{registry.repository}:{tag}", folder, own_login=own):
            output = run(command, what=f"pushing {image.name} to {registry.repository}", report=report)
        digest = _digest(folder / "digest", output, registry.repository)
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
    """Raise UsageError if an image lacks the libraries of a cluster's fabric.

    Without them, the run would train over TCP, or fail.

    Args:
        image: the image.
        fabric: the fabric of the cluster's nodes.
        cluster: the cluster's name, for the message.
    """
    known = fabric_of(fabric)
    wanted = known.image if known else image.fabric  # any image serves a network without a fabric
    if wanted != image.fabric:
        raise UsageError(
            f"the nodes of cluster {cluster!r} use {fabric}, and {image.name} is built for {image.fabric}",
            remedy=f"cloudrec image build --fabric {wanted}",
        )


def destination_tag(image: BuiltImage) -> str:
    """Return a tag with the time of the build, which is new also for registries with immutable tags."""
    moment = re.sub(r"[^0-9]", "", image.built)[:14]
    return f"{image.name.rpartition(':')[2]}-{moment}"


def _digest(file: Path, output: str, repository: str) -> str:
    """Return the digest that the builder wrote to a file, or printed as one of the image's names."""
    # podman and buildah write the digest to the file; docker prints all names of the image.
    if file.is_file():
        found = _DIGEST.search(file.read_text(encoding="ascii", errors="replace"))
    else:
        names = [name for name in safe_json(output or "[]") if name.partition("@")[0] == repository]
        found = _DIGEST.search(names[-1]) if names else None
    if found is None:
        raise CloudrecError(
            "the image was pushed, but the registry did not report its digest", remedy="push it again"
        )
    return found[0]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

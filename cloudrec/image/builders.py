"""docker, podman and buildah: how each is asked to build, to log in, and to push.

A registry's password goes to a program's standard input, and what that program keeps of it lies in a folder
of our own that is removed: neither in an argument, nor in a log, nor among the user's logins.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from cloudrec.errors import PreflightError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PROBE_S = 20.0


@dataclass(frozen=True, kw_only=True)
class BuildOrder:
    """What is to be built.

    Attributes:
        context: the folder that the builder sees.
        dockerfile: the Dockerfile.
        target: the Dockerfile's stage.
        name: what the image is to be called, with a tag.
        arguments: the Dockerfile's arguments.
        pip_conf: pip's configuration for the build alone, as a secret; None for pip's own.
        platform: operating system and processor, as linux/amd64; empty for this machine's.
        flags: more flags for the builder.
    """

    context: Path
    dockerfile: Path
    target: str
    name: str
    arguments: Mapping[str, str]
    pip_conf: Path | None = None
    platform: str = ""
    flags: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Command:
    """A program's call: what a dry run prints is what a real one does."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


class Builder(ABC):
    """One of the programs.

    Attributes:
        builds_unused: whether some versions of it build stages that the target does not need.
    """

    name: ClassVar[str]
    builds_unused: ClassVar[bool] = False
    _build: ClassVar[tuple[str, ...]]
    _probe: ClassVar[tuple[str, ...]]

    def __init__(self, program: str) -> None:
        self.program = program

    def why_not(self) -> str:
        """Return why it cannot be used here; empty when it can."""
        try:
            done = subprocess.run(
                [self.program, *self._probe], capture_output=True, text=True, timeout=_PROBE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        return lines[-1] if done.returncode else ""

    def build(self, order: BuildOrder) -> Command:
        """Return the call that builds an image."""
        told = [word for key, value in order.arguments.items() for word in ("--build-arg", f"{key}={value}")]
        secret = ["--secret", f"id=pip,src={order.pip_conf}"] if order.pip_conf is not None else []
        platform = ["--platform", order.platform] if order.platform else []
        where = ["--file", str(order.dockerfile), "--target", order.target, "--tag", order.name]
        words = (*self._build, *where, *told, *secret, *platform, *order.flags, str(order.context))
        return Command(arguments=(self.program, *words), environment=self._environment())

    @abstractmethod
    def login(self, address: str, username: str, folder: Path) -> Command:
        """Return the call that logs in, with the password on its standard input; `folder` keeps the login."""

    @abstractmethod
    def push(self, name: str, destination: str, folder: Path, *, own_login: bool) -> Sequence[Command]:
        """Return the calls that push an image; the last one leaves its digest in `folder`, or prints it.

        Args:
            name: the image here.
            destination: repository and tag.
            folder: holds the login, and takes the digest.
            own_login: use the user's own login, not one in `folder`.
        """

    def _environment(self) -> Mapping[str, str]:
        return {}


class Docker(Builder):
    """Docker, whose daemon holds the images; BuildKit builds."""

    name = "docker"
    _build = ("build", "--progress", "plain")
    _probe = ("version", "--format", "{{.Server.Version}}")

    def login(self, address: str, username: str, folder: Path) -> Command:
        """See `Builder`."""
        words = ("--config", str(folder), "login", "--username", username, "--password-stdin", address)
        return Command(arguments=(self.program, *words), environment=self._where())

    def push(self, name: str, destination: str, folder: Path, *, own_login: bool) -> Sequence[Command]:
        """See `Builder`."""
        config = () if own_login else ("--config", str(folder))
        calls = [("tag", name, destination), ("push", destination)]
        inspect = ("image", "inspect", "--format", "{{json .RepoDigests}}", destination)
        return [
            Command(arguments=(self.program, *config, *words), environment=self._where())
            for words in (*calls, inspect)
        ]

    def _environment(self) -> Mapping[str, str]:
        return {"DOCKER_BUILDKIT": "1"}

    def _where(self) -> Mapping[str, str]:
        """Name the daemon of the user's own context, which another configuration folder does not know."""
        if os.environ.get("DOCKER_HOST"):
            return {}
        asked = [self.program, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_PROBE_S, check=False)
        host = done.stdout.strip()
        return {"DOCKER_HOST": host} if done.returncode == 0 and host else {}


class _Daemonless(Builder):
    """What podman and buildah have in common."""

    builds_unused = True

    def login(self, address: str, username: str, folder: Path) -> Command:
        """See `Builder`."""
        auth = ("--authfile", str(folder / "auth.json"))
        words = ("login", *auth, *_tls(address), "--username", username, "--password-stdin", address)
        return Command(arguments=(self.program, *words), environment={})

    def push(self, name: str, destination: str, folder: Path, *, own_login: bool) -> Sequence[Command]:
        """See `Builder`."""
        auth = () if own_login else ("--authfile", str(folder / "auth.json"))
        words = ("push", *auth, *_tls(destination), "--digestfile", str(folder / "digest"))
        return [Command(arguments=(self.program, *words, name, f"docker://{destination}"), environment={})]


class Podman(_Daemonless):
    """Podman."""

    name = "podman"
    _build = ("build",)
    _probe = ("version", "--format", "{{.Client.Version}}")


class Buildah(_Daemonless):
    """Buildah."""

    name = "buildah"
    _build = ("bud", "--layers")
    _probe = ("version",)


_KNOWN: tuple[type[Builder], ...] = (Docker, Podman, Buildah)
NAMES = tuple(each.name for each in _KNOWN)


def find(wanted: str | None = None) -> Builder:
    """Return the builder of a name, or the first that works here.

    Raises:
        UsageError: the name is none that is known.
        PreflightError: it is not installed, or does not work; each one's reason is told.
    """
    if wanted is not None and wanted not in NAMES:
        raise UsageError(f"builder {wanted!r} is not known", remedy=f"choose one of: {', '.join(NAMES)}")
    reasons = []
    for each in _KNOWN:
        if wanted in {None, each.name}:
            program = shutil.which(each.name)
            builder = each(program) if program is not None else None
            why = builder.why_not() if builder is not None else "it is not on PATH"
            if builder is not None and not why:
                return builder
            reasons.append(f"{each.name}: {why}")
    raise PreflightError(
        "\n".join(["there is nothing to build or push an image with", *reasons]),
        remedy="install docker, podman or buildah, or start docker's daemon; or train with --image",
    )


def _tls(address: str) -> tuple[str, ...]:
    """Ask for no certificate of a registry on this machine, as docker does by itself."""
    host = address.partition("/")[0].rpartition(":")[0] or address.partition("/")[0]
    return ("--tls-verify=false",) if host == "localhost" or host.startswith("127.") else ()

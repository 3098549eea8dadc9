"""The commands of docker, podman and buildah that build an image, log in, and push.

A registry's password is passed on a program's standard input. The program keeps its login in a temporary
folder that is removed. So the password is in no argument, in no log, and not among the user's logins.
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
    """The values of a build.

    Attributes:
        context: the build context.
        dockerfile: the Dockerfile.
        target: the Dockerfile's stage.
        name: the image's name with its tag.
        arguments: the build arguments.
        pip_conf: pip's configuration for the build, passed as a secret; None for pip's default.
        platform: operating system and processor, as linux/amd64; empty for this machine's.
        flags: further flags for the builder.
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
class BuildCommand:
    """The call of a program. A dry run prints it, and a real run makes the same call."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


class Builder(ABC):
    """A program that builds images.

    Attributes:
        name: its name, the value of `--builder`.
        builds_unused: whether some of its versions build stages that the target does not need.
    """

    name: ClassVar[str]
    builds_unused: ClassVar[bool] = False
    _build: ClassVar[tuple[str, ...]]
    _probe: ClassVar[tuple[str, ...]]

    def __init__(self, program: str) -> None:
        self.program = program

    def why_not(self) -> str:
        """Return why the program does not work on this machine; empty if it does."""
        try:
            done = subprocess.run(
                [self.program, *self._probe], capture_output=True, text=True, timeout=_PROBE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        return lines[-1] if done.returncode else ""

    def build(self, order: BuildOrder) -> BuildCommand:
        """Return the call that builds an image."""
        given = [word for key, value in order.arguments.items() for word in ("--build-arg", f"{key}={value}")]
        secret = ["--secret", f"id=pip,src={order.pip_conf}"] if order.pip_conf is not None else []
        platform = ["--platform", order.platform] if order.platform else []
        where = ["--file", str(order.dockerfile), "--target", order.target, "--tag", order.name]
        words = (*self._build, *where, *given, *secret, *platform, *order.flags, str(order.context))
        return BuildCommand(arguments=(self.program, *words), environment=self._environment())

    @abstractmethod
    def login(self, address: str, username: str, folder: Path) -> BuildCommand:
        """Return the call that logs in. It reads the password from standard input, and writes to `folder`."""

    @abstractmethod
    def push(self, name: str, destination: str, folder: Path, *, own_login: bool) -> Sequence[BuildCommand]:
        """Return the calls that push an image; the last one writes its digest to `folder`, or prints it.

        Args:
            name: the image's name on this machine.
            destination: repository and tag.
            folder: the folder with the login, for the digest.
            own_login: use the user's login instead of that in `folder`.
        """

    def _environment(self) -> Mapping[str, str]:
        return {}


class Docker(Builder):
    """Docker: its daemon keeps the images, and BuildKit builds them."""

    name = "docker"
    _build = ("build", "--progress", "plain")
    _probe = ("version", "--format", "{{.Server.Version}}")

    def login(self, address: str, username: str, folder: Path) -> BuildCommand:
        """See `Builder`."""
        words = ("--config", str(folder), "login", "--username", username, "--password-stdin", address)
        return BuildCommand(arguments=(self.program, *words), environment=self._where())

    def push(self, name: str, destination: str, folder: Path, *, own_login: bool) -> Sequence[BuildCommand]:
        """See `Builder`."""
        # docker has no option for the digest, so `image inspect` reads it after the push.
        config = () if own_login else ("--config", str(folder))
        calls = [("tag", name, destination), ("push", destination)]
        inspect = ("image", "inspect", "--format", "{{json .RepoDigests}}", destination)
        return [
            BuildCommand(arguments=(self.program, *config, *words), environment=self._where())
            for words in (*calls, inspect)
        ]

    def _environment(self) -> Mapping[str, str]:
        return {"DOCKER_BUILDKIT": "1"}

    def _where(self) -> Mapping[str, str]:
        """Return the variable with the address of the user's docker daemon."""
        # The address is in the user's docker configuration, and `--config` names another folder.
        if os.environ.get("DOCKER_HOST"):
            return {}
        command = [self.program, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_S, check=False)
        host = done.stdout.strip()
        return {"DOCKER_HOST": host} if done.returncode == 0 and host else {}


class _Daemonless(Builder):
    """The common part of podman and buildah."""

    builds_unused = True

    def login(self, address: str, username: str, folder: Path) -> BuildCommand:
        """See `Builder`."""
        auth = ("--authfile", str(folder / "auth.json"))
        words = ("login", *auth, *_tls(address), "--username", username, "--password-stdin", address)
        return BuildCommand(arguments=(self.program, *words), environment={})

    def push(self, name: str, destination: str, folder: Path, *, own_login: bool) -> Sequence[BuildCommand]:
        """See `Builder`."""
        auth = () if own_login else ("--authfile", str(folder / "auth.json"))
        words = ("push", *auth, *_tls(destination), "--digestfile", str(folder / "digest"))
        return [
            BuildCommand(arguments=(self.program, *words, name, f"docker://{destination}"), environment={})
        ]


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
    """Return the builder of a name, or the first one that works on this machine.

    Raises:
        UsageError: the name is unknown.
        PreflightError: no builder is installed and works; the message has the reason for each.
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
        "\n".join(["there is no program to build or push an image", *reasons]),
        remedy="install docker, podman or buildah, or start docker's daemon; or train with --image",
    )


def _tls(address: str) -> tuple[str, ...]:
    """Return the flag that allows plain HTTP for a registry on this machine, as docker does by default."""
    host = address.partition("/")[0].rpartition(":")[0] or address.partition("/")[0]
    return ("--tls-verify=false",) if host == "localhost" or host.startswith("127.") else ()

"""Runs a builder's commands: their lines go to whoever follows, their last ones into the error."""

from __future__ import annotations

import os
import re
import subprocess
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, PreflightError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import SecretStr

    from cloudrec.image.builders import Command

_KEPT = 15  # lines
_ENDING_S = 10.0


@dataclass(frozen=True, kw_only=True)
class _Meaning:
    """What a builder's or a registry's words mean to a person."""

    words: tuple[str, ...]  # patterns, any of which tells
    meaning: str
    remedy: str
    kind: type[CloudrecError]


_MEANINGS = (  # the more special first
    _Meaning(
        words=("no space left on device", "disk quota exceeded"),
        meaning="the disk is full",
        remedy="free some space, as by `docker system prune` or `buildah rmi --prune`; an image needs 20 GB",
        kind=StorageError,
    ),
    _Meaning(
        words=("cannot connect to the docker daemon", "is the docker daemon running"),
        meaning="docker's daemon does not answer",
        remedy="start it, or choose another program with --builder",
        kind=PreflightError,
    ),
    _Meaning(
        words=(
            "name.unknown",
            "repository .*(does not exist|not found)",
            "status:? 404",
            r"\b404 \(?not found",
        ),
        meaning="the registry has no such repository",
        remedy="`cloudrec up` makes a cluster's own; another must exist before an image is pushed to it",
        kind=PreflightError,
    ),
    _Meaning(
        words=("tag .*immutable", "imagetagalreadyexists"),
        meaning="the registry holds another image of that tag, and its tags are fixed",
        remedy="push under another --tag",
        kind=PreflightError,
    ),
    _Meaning(
        words=(
            "unauthorized",
            "authentication required",
            "no basic auth credentials",
            r"(?<!permission )\bdenied(:|$)",
            "access to the resource is denied",
            r"\bforbidden\b",
            "status:? 40[13]",
            "(invalid|incorrect) username",
        ),
        meaning="the registry refuses the login, or does not let it push",
        remedy="see that your credentials are fresh and may push there (`cloudrec doctor`), then try again",
        kind=PreflightError,
    ),
    _Meaning(
        words=(
            "no such host",
            "connection refused",
            "i/o timeout",
            "connection reset",
            "tls handshake",
            "network is unreachable",
            "name resolution",
        ),
        meaning="the network, or what is at its other end, does not answer",
        remedy="see whether this machine reaches it; a private package index is named with --pip-conf",
        kind=StorageError,
    ),
)


def run(
    command: Command,
    *,
    what: str,
    report: Callable[[str], None] = lambda _line: None,
    secret: SecretStr | None = None,
) -> str:
    """Run a command to its end and return what it printed.

    Args:
        command: the call.
        what: what it does, for the message: "building the image".
        report: is told of every line.
        secret: goes to its standard input.

    Raises:
        PreflightError: the registry refuses, the daemon does not answer, or the program is not there.
        StorageError: the disk is full, or the network does not answer.
        CloudrecError: it failed otherwise; its last lines are told.
    """
    try:
        process = subprocess.Popen(
            command.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **command.environment},
        )
    except OSError as error:
        raise PreflightError(
            f"{what} failed: cannot start {command.arguments[0]}: {error.strerror}"
        ) from error
    try:
        lines = _follow(process, report, secret)
        code = process.wait()
    finally:
        _end(process)
    if code != 0:
        raise _failure(what, code, lines)
    return "\n".join(lines)


def _follow(
    process: subprocess.Popen[str], report: Callable[[str], None], secret: SecretStr | None
) -> deque[str]:
    lines: deque[str] = deque(maxlen=_KEPT)
    assert process.stdin is not None  # noqa: S101  # both are pipes, which the type does not tell
    assert process.stdout is not None  # noqa: S101
    with process.stdin as stdin:
        if secret is not None:
            stdin.write(secret.get_secret_value())
    for line in process.stdout:
        if text := line.rstrip():
            lines.append(text)
            report(text)
    return lines


def _end(process: subprocess.Popen[str]) -> None:
    """Leave no builder behind; after Ctrl-C it has got the signal too, and cleans up."""
    if process.stdout is not None:
        process.stdout.close()
    try:
        process.wait(_ENDING_S if process.poll() is None else 0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _failure(what: str, code: int, lines: deque[str]) -> CloudrecError:
    text = "\n".join(lines)
    for each in _MEANINGS:
        if re.search("|".join(each.words), text, re.IGNORECASE | re.MULTILINE):
            return each.kind("\n".join([f"{what} failed: {each.meaning}", *lines]), remedy=each.remedy)
    return CloudrecError(
        "\n".join([f"{what} failed with exit code {code}; its last lines:", *lines]),
        remedy="the lines above tell what is wrong",
    )

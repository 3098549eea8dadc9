"""Runs a builder's commands, reports their lines, and explains their errors."""

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

    from cloudrec.image.builders import BuildCommand

_KEPT = 15  # last lines in an error's message
_ENDING_S = 10.0


@dataclass(frozen=True, kw_only=True)
class _Meaning:
    """The explanation of an error of a builder or a registry."""

    words: tuple[str, ...]  # patterns of the output, one of which must match
    meaning: str
    remedy: str
    kind: type[CloudrecError]


_MEANINGS = (  # the first match counts, so specific ones come before general ones
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
        remedy="`cloudrec up` creates the cluster's repository; create any other one before the push",
        kind=PreflightError,
    ),
    _Meaning(
        words=("tag .*immutable", "imagetagalreadyexists"),
        meaning="the registry has another image with that tag, and its tags are immutable",
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
        meaning="the registry refuses the login, or a push with it",
        remedy="check that your credentials are valid and may push there (`cloudrec doctor`), then try again",
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
        meaning="a server does not answer, or cannot be reached",
        remedy="check this machine's network; for a private package index use --pip-conf",
        kind=StorageError,
    ),
)


def run(
    command: BuildCommand,
    *,
    what: str,
    report: Callable[[str], None] = lambda _line: None,
    secret: SecretStr | None = None,
) -> str:
    """Run a command to its end and return the last lines of its output.

    Args:
        command: the call.
        what: the action, for the message: "building the image".
        report: receives every line.
        secret: the text for its standard input; None for none.

    Raises:
        PreflightError: the registry refuses, the daemon does not answer, or the program cannot be started.
        StorageError: the disk is full, or a server does not answer.
        CloudrecError: it failed with another error; the message has its last lines.
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
    assert process.stdin is not None  # noqa: S101  # both are pipes, which the type does not show
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
    """Wait for a process to end, and kill it if it does not."""
    # After Ctrl-C, the builder has received the signal too, and gets some time to clean up.
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
        remedy="the lines above show what is wrong",
    )

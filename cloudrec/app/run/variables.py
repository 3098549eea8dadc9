"""The variables of a run: plain ones, files of them, and references to secrets."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError, SpecError
from cloudrec_contract.secret_values import is_secret, secret_among

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.launchers.base.protocol import Launcher
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.spec.load import Loaded

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Names that torchrun, the agent or the launchers set in each rank.
_OWNED = re.compile(
    r"RANK|WORLD_SIZE|(LOCAL|GROUP|ROLE)_(RANK|WORLD_SIZE|NAME)|MASTER_(ADDR|PORT)|TORCHELASTIC_\w+"
    r"|CLOUDREC_\w+|PYTHONSAFEPATH|PYTHONUNBUFFERED|POD_(NAME|UID|IP)|NODE_NAME"
)
_LARGEST_FILE = 1_000_000


def variables(loaded: Loaded) -> dict[str, str]:
    """Return the plain variables of the spec: of the files in their order, then `train.env`.

    Raises:
        SpecError: a name is invalid or cloudrec's own, a file cannot be read, or a value looks like a secret.
    """
    train = loaded.spec.train
    found: dict[str, str] = {}
    for name in train.env_file:
        found |= _read(_path(loaded, name))
    found |= train.env
    for name, value in found.items():
        _check_name(name)
        if is_secret(name, value):
            raise SpecError(
                f"train.env.{name} looks like a secret, and it would be written to the run's files, where "
                f"everyone who can read them could read it",
                remedy=f"pass a reference: --secret {name}; the value stays in a Kubernetes Secret, or in "
                "your own environment. What is no secret may have a name that ends in _ID, _SHA or _PATH",
            )
    for name in train.secrets:
        _check_name(name)
        if name in found:
            raise SpecError(f"{name} is given as a variable and as a secret", remedy="keep one of them")
    return found


def _path(loaded: Loaded, name: str) -> Path:
    from_file = loaded.origins.get(("train", "env_file"), "").startswith(f"{loaded.file} ")
    base = loaded.file.parent if from_file and loaded.file is not None else Path.cwd()
    return base / Path(name).expanduser()


def _read(path: Path) -> dict[str, str]:
    """Return the variables of a file: NAME=VALUE a line, as Docker's --env-file; # begins a comment line."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise SpecError(
                f"{path} is larger than {_LARGEST_FILE:,} bytes", remedy="name a file of variables"
            )
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SpecError(
            f"cannot read {path}: {reason}", remedy="name a file with lines NAME=VALUE"
        ) from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        name = name.removeprefix("export ").strip()
        if not equals or not _NAME.fullmatch(name):
            # The line itself is not shown: it may be a part of a secret.
            raise SpecError(f"{path} line {number} is not NAME=VALUE", remedy="correct the line")
        found[name] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"{name[:40]!r} cannot be the name of a variable",
            remedy="use letters, digits and _, as in --env A=1",
        )
    if _OWNED.fullmatch(name):
        raise SpecError(
            f"{name} is set by cloudrec or torchrun in each rank, so a run cannot set it",
            remedy="leave it out; `--nproc-per-node` and `--nodes` set the number of ranks",
        )


def refuse_secret_settings(config: Mapping[str, Any], arguments: Sequence[str]) -> None:
    """Refuse a secret among a trainer's settings or a program's arguments: both are written to files.

    Raises:
        SpecError: one of them looks like a secret.
    """
    settings = [name for name, value in config.items() if isinstance(value, str) and is_secret(name, value)]
    found = f"trainer.{settings[0]}" if settings else secret_among(arguments)
    if found is not None:
        raise SpecError(
            f"{found} looks like a secret, and it would be written to the run's files, to manifests and to "
            "the arguments of processes, where others can read it",
            remedy="let the program read it from a variable, and pass a reference: --secret NAME",
        )


def check_secrets(spec: RunSpec, launcher: Launcher, environment: Mapping[str, str]) -> None:
    """Check that a launcher other than Kubernetes can pass on the secrets of a run.

    Args:
        spec: the run.
        launcher: its launcher.
        environment: the variables of this process.

    Raises:
        PreflightError: a variable is not set here.
        SpecError: a reference has the form of a Kubernetes Secret.
    """
    if not launcher.reads_local_files:
        return
    for name, source in spec.secrets.items():
        if "/" in source:
            raise SpecError(
                f"--secret {name}={source} names a key of a Kubernetes Secret, and the launcher "
                f"{launcher.name!r} reads your own environment",
                remedy=f"set the variable {name} and pass --secret {name}",
            )
        if source not in environment:
            raise PreflightError(
                f"--secret {name}: the variable {source} is not set here",
                remedy=f"set it without writing it down: read -rs {source} && export {source}",
            )


@contextmanager
def passed_on(spec: RunSpec, launcher: Launcher) -> Iterator[None]:
    """Set a run's secrets in this process while it starts the run's processes, which inherit them."""
    if not launcher.reads_local_files or not spec.secrets:
        yield
        return
    before = {name: os.environ.get(name) for name in spec.secrets}
    os.environ.update({name: os.environ[source] for name, source in spec.secrets.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

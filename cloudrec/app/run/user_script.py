"""A run of a user's own script: which script, which folder, which arguments, and what it may not have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.errors import SpecError, UsageError
from cloudrec.launchers.base.script.pack import Archive, pack
from cloudrec.launchers.base.script_program import KEY, UserScript
from cloudrec_contract.settings import underscored_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.spec.load import Loaded

_REQUIREMENTS = "requirements.txt"
_USED = ("checkpoint_dir", "dataset_path")  # of the section `trainer`, which is for cloudrec's trainer
_SHOWN_BYTES = 10_000
_PREFIX = 20  # characters of a script's name in that of its run


@dataclass(frozen=True, kw_only=True)
class PackedScript:
    """A script with its packed folder.

    Attributes:
        script: what the run must know of it.
        archive: the folder.
        config: the keys of trainer.yaml.
    """

    script: UserScript
    archive: Archive
    config: dict[str, Any]

    @property
    def prefix(self) -> str:
        """The beginning of a name for the run: that of the script, as far as a run's name allows."""
        stem = re.sub(r"[^a-z0-9]+", "-", Path(self.script.file).stem.lower()).strip("-")
        return stem[:_PREFIX].strip("-") or "script"


def user_script(app: AppContext, loaded: Loaded, arguments: Sequence[str]) -> PackedScript | None:
    """Return the script that the spec names, packed; None if the run is of cloudrec's trainer.

    Args:
        app: the context of the use case.
        loaded: the spec.
        arguments: the script's arguments on the command line, after those in the spec.

    Raises:
        UsageError: there is no such script, or the folder is too large.
        DataError: a file of the folder cannot be packed.
    """
    train = loaded.spec.train
    if train.script is None:
        _refuse_without_script(loaded)
        return None
    folder = _path(loaded, "workdir", train.workdir).resolve()
    file = _script(_path(loaded, "script", train.script), folder, train.script)
    requirements = _requirements(loaded, folder)
    # The home holds other runs, and grows with each; it may lie below the folder.
    archive = pack(
        folder, without=[app.home.root, *(_path(loaded, "env_file", name) for name in train.env_file)]
    )
    script = UserScript(
        file=file,
        digest=archive.digest,
        arguments=(*train.arguments, *arguments),
        requirements=requirements,
        secrets=tuple(sorted(train.secrets)),
    )
    size = f"{archive.size:,} bytes" if archive.size < _SHOWN_BYTES else f"{archive.size / 1e6:.2f} MB"
    app.report(f"script {file}: {archive.files} files of {folder} ({size}), digest {archive.digest[:12]}")
    return PackedScript(
        script=script, archive=archive, config={**_settings(app, loaded), KEY: script.document()}
    )


def _refuse_without_script(loaded: Loaded) -> None:
    train = loaded.spec.train
    given = {
        "workdir": train.workdir != ".",
        "requirements": train.requirements,
        "arguments": train.arguments,
    }
    for name, is_given in given.items():
        if is_given:
            raise SpecError(
                f"train.{name} is for a script, and the run names none",
                remedy="name it: cloudrec train SCRIPT.py, or train.script; the trainer's flags follow --",
            )


def _path(loaded: Loaded, key: str, value: str) -> Path:
    """Return a path of the spec: from the file it is relative to the file's folder, else to this one."""
    from_file = loaded.origins.get(("train", key), "").startswith(f"{loaded.file} ")
    base = loaded.file.parent if from_file and loaded.file is not None else Path.cwd()
    return base / Path(value).expanduser()


def _script(path: Path, folder: Path, shown: str) -> str:
    """Return the script's name below its folder."""
    if not path.is_file():
        raise UsageError(
            f"there is no script {shown}", remedy="name a Python file; the trainer's flags follow `--`"
        )
    if path.suffix != ".py":
        raise UsageError(f"the script {shown} is no Python file", remedy="name a file that ends with .py")
    return _below(path, folder, f"the script {shown}")


def _requirements(loaded: Loaded, folder: Path) -> str:
    """Return the file of requirements below the folder; empty for none."""
    named = loaded.spec.train.requirements
    if named is None:
        return _REQUIREMENTS if (folder / _REQUIREMENTS).is_file() else ""
    path = _path(loaded, "requirements", named)
    if not path.is_file():
        raise UsageError(f"there is no file {named} with requirements", remedy="correct --requirements")
    return _below(path, folder, f"the file {named}")


def _below(path: Path, folder: Path, what: str) -> str:
    whole = path.parent.resolve() / path.name
    if not whole.is_relative_to(folder):
        raise UsageError(
            f"{what} is not in the folder {folder}, which is what the run gets",
            remedy=f"name a folder with it: --workdir {path.parent}",
        )
    return whole.relative_to(folder).as_posix()


def _settings(app: AppContext, loaded: Loaded) -> dict[str, Any]:
    """Return the settings of the section `trainer` that a script gets as variables; report the others."""
    config = underscored_keys(loaded.spec.trainer)
    if unused := sorted(set(config) - set(_USED)):
        app.report(
            f"a script does not get the section trainer ({', '.join(unused)}): pass arguments after --"
        )
    return {name: value for name, value in config.items() if name in _USED}

"""What a run must know of a user's script: part of spec.json, and of the trainer.yaml that nodes read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from cloudrec.errors import UsageError
from cloudrec_contract.safe_json import record_of

KEY = "script"  # of trainer.yaml: every launcher brings that file to its nodes
ARCHIVE = "code.tar.gz"  # the packed folder, in the run's folder on the launching machine
FOLDER = "code"  # the unpacked folder, in the run's folder on each node
READY = "code.json"  # how a rank starts the script; written when a node is prepared
STOP = "stop"  # appears in the run's folder of a node when the run is to stop
CHECKPOINTS = "checkpoints"
_REMEDY = "use one version of cloudrec on all machines"


@dataclass(frozen=True, kw_only=True)
class UserScript:
    """A script and the folder that it runs in.

    Args:
        file: the script, relative to the folder.
        digest: the SHA-256 of the packed folder.
        arguments: the script's arguments.
        requirements: the file of requirements for pip, relative to the folder; empty for none.
        secrets: the variables that come from secrets; a node without one of them refuses the run.
    """

    file: str
    digest: str
    arguments: tuple[str, ...] = ()
    requirements: str = ""
    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: object) -> Self:
        """Return the script in a document; UsageError if it is of another version."""
        if not isinstance(document, Mapping):
            raise UsageError(f"the run's script is a {type(document).__name__}", remedy=_REMEDY)
        try:
            return record_of(cls, document)
        except ValueError as error:
            raise UsageError(f"the run's script cannot be read: {error}", remedy=_REMEDY) from error

    def document(self) -> dict[str, Any]:
        """Return the script as part of trainer.yaml."""
        lists = {"arguments": list(self.arguments), "secrets": list(self.secrets)}
        return {**asdict(self), **lists}


def script_command() -> tuple[str, ...]:
    """Return the command of a rank that runs a script; launchers append their flags for the trainer."""
    return (sys.executable, "-P", "-m", "cloudrec.launchers.base.script.run")

"""The end of a rank of the trainer, as a JSON document that the launcher reads instead of the rank's log.

The launcher names the file in the variable CLOUDREC_END_EVENT. The trainer writes it right before its process
ends. A killed process writes none; then only its exit status is known.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Self

from cloudrec_contract.exit_codes import BAD_CONFIG, BAD_DATA, FINISHED, PEER_LOST, STOPPED
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from pathlib import Path

FILE_VARIABLE: Final = "CLOUDREC_END_EVENT"
_LARGEST = 64 * 1024  # bytes of a file that is read
_KINDS = {
    FINISHED: "finished",
    STOPPED: "stopped",
    PEER_LOST: "peer_lost",
    BAD_CONFIG: "bad_config",
    BAD_DATA: "bad_data",
}


@dataclass(frozen=True, kw_only=True)
class EndEvent:
    """The end of one attempt of one rank.

    Args:
        exit_code: the code of the process.
        kind: finished, stopped, peer_lost, bad_config, bad_data or failed.
        cause: the error, for users; empty if there is none. No part of cloudrec parses it.
        step: the last completed step; None before the first.
        checkpoint: the step of the newest committed checkpoint that the rank knows of; None if there is none.
        notice: the source that announced the end, such as `aws` or `SIGTERM`; empty if there was none.
        machine_leaves: whether the notice announces the end of this machine.
    """

    exit_code: int
    kind: str
    cause: str = ""
    step: int | None = None
    checkpoint: int | None = None
    notice: str = ""
    machine_leaves: bool = False

    @classmethod
    def of(cls, document: object) -> Self | None:
        """Read a document; None if it is not valid. Unknown keys are ignored."""
        if not isinstance(document, Mapping):
            return None
        known = {each.name: document[each.name] for each in fields(cls) if each.name in document}
        whole = [known.get(name) for name in ("exit_code", "step", "checkpoint")]
        texts = [known.get(name, "") for name in ("kind", "cause", "notice")]
        right = (
            type(known.get("exit_code")) is int
            and "kind" in known
            and all(value is None or type(value) is int for value in whole)
            and all(isinstance(value, str) for value in texts)
            and isinstance(known.get("machine_leaves", False), bool)
        )
        return cls(**known) if right else None

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a file; None if it is missing or damaged."""
        try:
            with path.open("rb") as file:
                return cls.of(safe_json(file.read(_LARGEST)))
        except (OSError, ValueError):
            return None

    def document(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        return asdict(self)

    def write(self, path: Path) -> None:
        """Replace a file atomically; OSError if that fails."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(json.dumps(self.document()) + "\n", encoding="utf-8")
        draft.replace(path)


def kind_of(exit_code: int) -> str:
    """Return the kind of an end with this code."""
    return _KINDS.get(exit_code, "failed")

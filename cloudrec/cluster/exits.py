"""Why a pod's container has ended: its exit code, its termination message, the kernel's verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

BAD_CONFIG, BAD_DATA, UNFIT, SPENT, AGAIN = 64, 65, 69, 70, 75
_AGAIN_FOR_OPERATOR = 203  # the same where an operator starts again only for codes of 128 and more
_KILLED, _TERMINATED = 137, 143
_TEXT_LIMIT = 500
_MAIN = ("trainer", "pytorch", "node", "ray-head", "ray-worker")  # the container that trains


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What is wrong, and what to do.

    Attributes:
        kind: one word for it, such as ImagePullBackOff.
        text: for a person.
        remedy: what to do.
        is_passing: whether it may go away by itself.
    """

    kind: str
    text: str
    remedy: str
    is_passing: bool = False

    def __str__(self) -> str:
        """The text and the remedy in one line."""
        return f"{self.text} ({self.remedy})" if self.remedy else self.text


def terminated(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how the container that trains has ended, now or before its last restart; {} if it has not."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    main = [each for each in statuses if each.get("name") in _MAIN] or statuses
    for state in ("state", "lastState"):
        for each in main:
            ended = (each.get(state) or {}).get("terminated")
            if ended:
                found: Mapping[str, Any] = ended
                return found
    return {}


def exit_cause(pod: Mapping[str, Any]) -> Cause | None:
    """Return why the container that trains has ended, None if it has not, or well."""
    ended = terminated(pod)
    if not ended or ended.get("exitCode") == 0:
        return None
    code, message = int(ended.get("exitCode", 1)), str(ended.get("message", "")).strip()[:_TEXT_LIMIT]
    if ended.get("reason") == "OOMKilled":
        return Cause(
            kind="OOMKilled",
            text="it used more memory than it was given, and the kernel killed it",
            remedy="give it more (train.settings.memory_gib), fewer processes a node, or smaller tables",
        )
    return _known(code, message)


def split_remedy(message: str) -> tuple[str, str]:
    """Return what a pod says is wrong, and the remedy that it says in brackets at the end, if it does."""
    found = re.fullmatch(r"(.+?) \((.+)\)", message, re.DOTALL)
    return (found[1], found[2]) if found else (message, "")


def _known(code: int, message: str) -> Cause:
    message, own = split_remedy(message)
    said = f": {message}" if message else ""
    if code == BAD_CONFIG:
        return Cause(
            kind="BadConfig",
            text=f"the trainer refuses its configuration{said}",
            remedy=own or "correct it, and launch a new run",
        )
    if code == BAD_DATA:
        return Cause(
            kind="BadData",
            text=f"the trainer refuses its data{said}",
            remedy=own or "`cloudrec data check` tells what is wrong with a dataset",
        )
    if code == UNFIT:
        return Cause(
            kind="Unfit",
            text=f"the node is not fit to train{said}",
            remedy=own
            or "`cloudrec doctor --cluster NAME` shows its devices; --allow-tcp trains without them",
        )
    if code == SPENT:
        return Cause(
            kind="RestartsSpent",
            text=f"it crashed more often than is forgiven{said}",
            remedy="`cloudrec logs RUN` shows why; --max-restarts forgives more",
        )
    if code in (AGAIN, _AGAIN_FOR_OPERATOR):
        return Cause(
            kind="Interrupted",
            text=f"it was stopped, or lost a peer{said}",
            remedy="the run goes on by itself",
            is_passing=True,
        )
    how = {_KILLED: "it was killed (SIGKILL)", _TERMINATED: "it was told to end (SIGTERM)"}
    return Cause(
        kind="Crashed",
        text=f"{how.get(code, f'it ended with exit code {code}')}{said}",
        remedy=own or "`cloudrec logs RUN` shows what it printed",
    )

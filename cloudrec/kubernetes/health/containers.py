"""Finds why a pod's container has ended, from its exit code, its termination message and an OOM kill."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec_contract.exit_codes import (
    BAD_CONFIG,
    BAD_DATA,
    GANG_INCOMPLETE,
    PEER_LOST,
    RESTARTS_SPENT,
    STOPPED,
    STOPPED_FOR_OPERATOR,
    UNFIT_NODE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_KILLED, _TERMINATED = 137, 143
_TEXT_LIMIT = 500
_SETUP, _ERROR = "setup", "error: "  # the init container that installs packages; its last line
_MAIN = ("trainer", "pytorch", "node", "ray-head", "ray-worker")  # the container that trains


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The cause of a problem, and its remedy.

    Attributes:
        kind: one word for it, such as ImagePullBackOff.
        text: a sentence on what is wrong.
        remedy: what to do.
        is_passing: whether the problem may end without the remedy.
    """

    kind: str
    text: str
    remedy: str
    is_passing: bool = False

    def __str__(self) -> str:
        """The text and the remedy in one line."""
        return f"{self.text} ({self.remedy})" if self.remedy else self.text


def terminated(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state `terminated` of the container that trains, now or before its last restart; else {}."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    # A pod may have further containers, such as a sidecar that a webhook adds; their codes do not count.
    main = [each for each in statuses if each.get("name") in _MAIN] or statuses
    for state in ("state", "lastState"):
        for each in main:
            ended = (each.get(state) or {}).get("terminated")
            if ended:
                found: Mapping[str, Any] = ended
                return found
    return {}


def exit_cause(pod: Mapping[str, Any]) -> Cause | None:
    """Return why the container that trains has failed, or could not start; None if neither is so."""
    ended = terminated(pod)
    if not ended or ended.get("exitCode") == 0:
        return _setup_cause(pod)
    code, message = int(ended.get("exitCode", 1)), str(ended.get("message", "")).strip()[:_TEXT_LIMIT]
    if ended.get("reason") == "OOMKilled":
        return Cause(
            kind="OOMKilled",
            text="it used more memory than its limit, and the kernel killed it",
            remedy="raise train.settings.memory_gib, or use fewer processes a node or smaller tables",
        )
    return _known(code, message)


def _setup_cause(pod: Mapping[str, Any]) -> Cause | None:
    """Return why the container that installs the packages has failed; None if it has not."""
    for each in (pod.get("status") or {}).get("initContainerStatuses") or []:
        ended = (each.get("state") or {}).get("terminated") or {}
        if each.get("name") == _SETUP and ended.get("exitCode"):
            lines = [line for line in str(ended.get("message", "")).splitlines() if line.startswith(_ERROR)]
            why = lines[-1].removeprefix(_ERROR)[:_TEXT_LIMIT] if lines else f"exit code {ended['exitCode']}"
            return Cause(
                kind="SetupFailed",
                text=f"the pod could not be prepared: {why}",
                remedy="if it reaches no package index, set cluster.package_index to a mirror, or push an "
                "image: `cloudrec image build && cloudrec image push`",
            )
    return None


def split_remedy(message: str) -> tuple[str, str]:
    """Return the text of a pod's message, and the remedy in brackets at its end; "" without one."""
    found = re.fullmatch(r"(.+?) \((.+)\)", message, re.DOTALL)
    return (found[1], found[2]) if found else (message, "")


# Of exit codes after which the run ends: the kind, the text, and the remedy unless the message has its own.
_ENDS = {
    BAD_CONFIG: (
        "BadConfig",
        "the trainer refuses its configuration",
        "correct it, and launch a new run",
    ),
    BAD_DATA: (
        "BadData",
        "the trainer refuses its data",
        "`cloudrec data check` shows what is wrong with a dataset",
    ),
    UNFIT_NODE: (
        "Unfit",
        "the node is not fit to train",
        "`cloudrec doctor --cluster NAME` shows its devices; --allow-tcp trains without them",
    ),
    GANG_INCOMPLETE: (
        "GangIncomplete",
        "too few nodes joined the run in time",
        "`cloudrec doctor --cluster NAME` shows the nodes; use fewer --nodes, or a higher start_timeout_s",
    ),
}


def _known(code: int, message: str) -> Cause:
    message, own = split_remedy(message)
    detail = f": {message}" if message else ""
    if code in _ENDS:
        kind, text, remedy = _ENDS[code]
        return Cause(kind=kind, text=f"{text}{detail}", remedy=own or remedy)
    if code == RESTARTS_SPENT:
        return Cause(
            kind="RestartsSpent",
            text=f"it crashed more often than --max-restarts allows{detail}",
            remedy="`cloudrec logs RUN` shows why; a higher --max-restarts allows more crashes",
        )
    if code in (STOPPED, PEER_LOST, STOPPED_FOR_OPERATOR):
        return Cause(
            kind="Interrupted",
            text=f"it was stopped, or lost a peer{detail}",
            remedy="the run continues by itself",
            is_passing=True,
        )
    signalled = {_KILLED: "it was killed (SIGKILL)", _TERMINATED: "it was asked to end (SIGTERM)"}
    return Cause(
        kind="Crashed",
        text=f"{signalled.get(code, f'it ended with exit code {code}')}{detail}",
        remedy=own or "`cloudrec logs RUN` shows its output",
    )

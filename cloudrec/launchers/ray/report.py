"""The report of a Ray run's driver: the file RESULTS/ray/LAUNCH.json.

The driver (`cloudrec.agent drive`) writes it in the cluster, and the launcher reads it from the cluster's
storage. Both use this module, so the format is in one place.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.launchers.base.ledger import RunState
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class AgentReport:
    """The state of one node's agent.

    Attributes:
        node: the address of its machine; empty before it has one.
        state: "starting", "at work", "restarting", "ended" or "lost".
        cause: why its ranks restart, or why it ended; empty when nothing is wrong.
        restarts: how often its ranks were started again.
    """

    node: str = ""
    state: str = "starting"
    cause: str = ""
    restarts: int = 0


@dataclass(frozen=True, kw_only=True)
class LaunchReport:
    """The state of a launch.

    Attributes:
        launch: the number of the launch, 1 for the first.
        state: PENDING, RUNNING or RESTARTING. A final state is that of the Ray job.
        cause: what the launch waits for, or why it ended.
        places: the state of each agent, by the agent's number.
        code: the exit code of the run; None while it runs.
    """

    launch: int
    state: RunState = RunState.PENDING
    cause: str = ""
    places: Mapping[int, AgentReport] = field(default_factory=dict)
    code: int | None = None

    def encode(self) -> bytes:
        """Return the content of the file, as JSON in UTF-8."""
        return json.dumps(asdict(self), indent=2).encode()

    @classmethod
    def decode(cls, content: bytes | None) -> LaunchReport | None:
        """Return the report in a file's content; None if the file is missing, empty or damaged.

        A field that is missing has its default, since the driver may be of an earlier release.
        """
        try:
            document = safe_object(content or b"{}")
            return cls._of(document) if document else None
        except (ValueError, TypeError, AttributeError):
            return None

    @classmethod
    def _of(cls, document: Mapping[str, Any]) -> LaunchReport:
        code = document.get("code")
        return cls(
            launch=int(document.get("launch", 0)),
            state=RunState(document.get("state") or RunState.PENDING),
            cause=str(document.get("cause") or ""),
            places={int(place): _agent_of(each) for place, each in (document.get("places") or {}).items()},
            code=None if code is None else int(code),
        )


def _agent_of(document: Mapping[str, Any]) -> AgentReport:
    return AgentReport(
        node=str(document.get("node", "")),
        state=str(document.get("state", "")),
        cause=str(document.get("cause", "")),
        restarts=int(document.get("restarts", 0)),
    )

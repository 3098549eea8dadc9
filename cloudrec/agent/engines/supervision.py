"""The decisions of a driver of agents. They are pure: this module starts no process and calls no cluster.

Each node of the run has one place for an agent. An agent that ends with the exit code "start me again", or
is lost with its machine, is replaced. The agents' own rendezvous handles the rest, such as fewer nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from cloudrec.errors import UsageError
from cloudrec_contract.exit_codes import FAILED, FINAL, FINISHED, GANG_INCOMPLETE, RESTARTS_SPENT, STOPPED
from cloudrec_contract.safe_json import record_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.launchers.base.ledger import LedgerEvent

LOST = None  # instead of an exit code: the agent's machine or its process was lost


class AgentChange(Enum):
    """What can happen to a node's agent."""

    PLACED = auto()  # it has a machine
    LOST = auto()  # its machine or its process was lost
    ENDED = auto()  # it ended with an exit code
    MOVED = auto()  # it is stopped, since the node where it looks for the others is lost


@dataclass(frozen=True, kw_only=True)
class AgentEvent:
    """A change of a node's agent that the driver has noticed; `str` gives the line for the driver's log.

    Args:
        change: what happened.
        place: the number of the agent, from 0.
        address: the address of its machine; for PLACED.
        code: its exit code; for ENDED.
    """

    change: AgentChange
    place: int
    address: str = ""
    code: int | None = None

    def __str__(self) -> str:
        """Return a sentence about the event."""
        predicates = {
            AgentChange.PLACED: f"is at {self.address}",
            AgentChange.LOST: "is lost, with its process or its machine",
            AgentChange.ENDED: f"ended with {self.code}",
            AgentChange.MOVED: "is restarted, to meet the others at another node",
        }
        return f"agent {self.place} {predicates[self.change]}"


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """What a driver starts: the content of launch.json.

    Args:
        nodes: number of agents, one on each node.
        min_nodes: number of nodes with which the run may continue.
        max_restarts: number of crashes after which the run still continues.
        gpus: GPUs of each agent.
        port: port of the rendezvous; 0 for one that is free on the machine where the ranks meet.
        agent: the command of the agent and torchrun, without the arguments of the rendezvous.
        program: the command that torchrun starts.
        cpus: cores of each agent.
        wait_s: seconds to wait for all machines; 0 to wait without a limit.
        environment: variables that the agents need and that their machines do not have.
    """

    nodes: int
    min_nodes: int
    max_restarts: int
    gpus: int
    port: int
    agent: tuple[str, ...]
    program: tuple[str, ...]
    cpus: float = 1
    wait_s: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> LaunchRequest:
        """Return the request in a document; UsageError if a field is missing or unknown."""
        try:
            return record_of(cls, document)
        except ValueError as error:
            raise UsageError(f"the launch's file is of another version: {error}") from error

    def command(self, *, rendezvous: str, port: int, address: str) -> list[str]:
        """Return the command that one node runs.

        Args:
            rendezvous: address of the node where the ranks meet.
            port: port of the rendezvous.
            address: the node's own address.
        """
        meeting = ("--rdzv-endpoint", f"{rendezvous}:{port}", "--local-addr", address)
        return [*self.agent, *meeting, *self.program]


@dataclass(frozen=True, kw_only=True)
class AgentState:
    """The state of an agent's ranks, according to its ledger.

    Args:
        state: "starting", "at work", "restarting" or "ended".
        cause: why they restart, or ended; empty when nothing is wrong.
        restarts: how often they were started again.
    """

    state: str = "starting"
    cause: str = ""
    restarts: int = 0

    @classmethod
    def of(cls, events: Sequence[LedgerEvent]) -> AgentState:
        """Return the state after the events of one launch."""
        states = {"rank_started": "at work", "running": "at work", "restarting": "restarting"}
        states |= dict.fromkeys(("succeeded", "interrupted", "failed"), "ended")
        changes = [event for event in events if event.event in states]
        return cls(
            state=states[changes[-1].event] if changes else "starting",
            cause=str(changes[-1].details.get("cause") or "") if changes else "",
            restarts=sum(event.event == "restarting" for event in events),
        )


@dataclass
class LaunchProgress:
    """The state of a launch: which agents have machines, where they meet, and which have finished.

    Args:
        launch: the launch.
    """

    launch: LaunchRequest
    crashes: int = 0
    _ready: dict[int, tuple[str, int]] = field(default_factory=dict)
    _finished: set[int] = field(default_factory=set)
    _meeting: int | None = None
    _rendezvous: dict[int, tuple[str, int]] = field(default_factory=dict)  # of each agent's newest command

    def ready(self, place: int, address: str, port: int = 0) -> None:
        """Note that a place has a machine.

        Args:
            place: the place.
            address: the address of the machine.
            port: a free port of the machine; used if the launch names no port.
        """
        self._ready[place] = (address, self.launch.port or port)

    def command(self, place: int) -> list[str]:
        """Return the command for a place that has a machine. All agents meet at one machine that exists."""
        if self._meeting not in self._ready:
            self._meeting = min(self._ready)
        assert self._meeting is not None  # noqa: S101 - this place is ready, so there is one
        host, port = self._rendezvous[place] = self._ready[self._meeting]
        return self.launch.command(rendezvous=host, port=port, address=self._ready[place][0])

    def ended(self, place: int, code: int | None) -> int | None:
        """Note an agent's end; return the code that ends the whole run, or None if the run continues.

        Args:
            place: the agent's place.
            code: its exit code; LOST if its machine was lost.
        """
        if code is LOST:
            self._ready.pop(place, None)
            return None
        if code == FINISHED:
            self._finished.add(place)
            return None
        # The agent saved a checkpoint and asks to be started again: that is not a crash.
        if code == STOPPED:
            return None
        # Another agent would count the same crashes again, or wait for the other nodes as long as this one.
        if code in (*FINAL, RESTARTS_SPENT, GANG_INCOMPLETE):
            return code
        self.crashes += 1
        return None if self.crashes <= self.launch.max_restarts else FAILED

    def outdated(self) -> list[int]:
        """Return the places whose agents use a rendezvous on a machine that the launch has lost."""
        current = (None, *self._ready.values())
        return [place for place in self._ready if self._rendezvous.get(place) not in current]

    def needs(self, place: int) -> bool:
        """Return whether a place needs an agent.

        An agent finishes only when the run has: after the first one, no place needs another.
        """
        return not self._finished and place not in self._finished

    def is_over(self, running: int) -> bool:
        """Return whether the launch has finished and no agent runs.

        Args:
            running: number of agents that run.
        """
        return bool(self._finished) and not running

"""What a driver of agents does next: pure decisions, no process and no cluster.

There is one place for an agent for each node of the run. An agent that ends by a code of "start me again", or
with its machine, gets another one in its place; what the agents' own rendezvous is for, such as going on with
fewer nodes, is theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.errors import UsageError
from cloudrec.pod.codes import AGAIN, CRASHED, FINAL, FINISHED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.launch.ledger import Event

LOST = None  # the code of an agent whose machine is gone


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a driver is to start: the content of launch.json.

    Args:
        nodes: places for agents.
        min_nodes: with how many the run may go on.
        max_restarts: how many crashes are forgiven.
        gpus: GPUs that each agent has.
        port: where ranks meet; 0 for one that is free on the machine where they meet.
        agent: the agent and torchrun, as far as they do not depend on where ranks meet.
        program: what torchrun starts.
        cpus: cores that each agent has.
        wait_s: seconds within which there must be machines for all of them; 0 for as long as it takes.
        environment: variables for the agents, where their machines do not have them.
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
    def of(cls, document: Mapping[str, Any]) -> Launch:
        """Read one; UsageError where it is not whole."""
        lists = {name: tuple(value) for name, value in document.items() if isinstance(value, list)}
        try:
            return cls(**{**document, **lists})
        except TypeError as error:
            raise UsageError(f"the launch's file is of another version: {error}") from error

    def command(self, *, rendezvous: str, port: int, address: str) -> list[str]:
        """Return what one node runs.

        Args:
            rendezvous: the address of the node where ranks meet.
            port: and its port.
            address: its own.
        """
        meeting = ("--rdzv-endpoint", f"{rendezvous}:{port}", "--local-addr", address)
        return [*self.agent, *meeting, *self.program]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What an agent's ranks do, as its ledger tells.

    Args:
        state: "starting", "at work", "restarting" or "ended".
        cause: why they restart, or ended; empty when nothing is wrong.
        restarts: how often they were started again.
    """

    state: str = "starting"
    cause: str = ""
    restarts: int = 0

    @classmethod
    def of(cls, events: Sequence[Event]) -> Look:
        """Read it out of one launch's events."""
        words = {"rank_started": "at work", "running": "at work", "restarting": "restarting"}
        words |= dict.fromkeys(("succeeded", "interrupted", "failed"), "ended")
        told = [event for event in events if event.event in words]
        return cls(
            state=words[told[-1].event] if told else "starting",
            cause=str(told[-1].details.get("cause") or "") if told else "",
            restarts=sum(event.event == "restarting" for event in events),
        )


@dataclass
class Course:
    """How far a launch has come.

    Args:
        launch: the launch.
    """

    launch: Launch
    crashes: int = 0
    _ready: dict[int, tuple[str, int]] = field(default_factory=dict)
    _finished: set[int] = field(default_factory=set)
    _meeting: int | None = None
    _told: dict[int, tuple[str, int]] = field(default_factory=dict)  # where each agent was sent to meet

    def ready(self, place: int, address: str, port: int = 0) -> None:
        """Note that a place has a machine, its address, and a port to meet at, where the launch has none."""
        self._ready[place] = (address, self.launch.port or port)

    def command(self, place: int) -> list[str]:
        """Return what a place that is ready runs: all meet at one that is still there."""
        if self._meeting not in self._ready:
            self._meeting = min(self._ready)
        assert self._meeting is not None  # noqa: S101 - this place is ready, so there is one
        host, port = self._told[place] = self._ready[self._meeting]
        return self.launch.command(rendezvous=host, port=port, address=self._ready[place][0])

    def ended(self, place: int, code: int | None) -> int | None:
        """Note an agent's end; return the code that ends the whole run, or None where it goes on.

        Args:
            place: whose.
            code: its exit code; LOST where its machine went with it.
        """
        if code is LOST:
            self._ready.pop(place, None)
            return None
        if code == FINISHED:
            self._finished.add(place)
            return None
        if code == AGAIN:
            return None
        if code in FINAL:
            return code
        self.crashes += 1
        return None if self.crashes <= self.launch.max_restarts else CRASHED

    def strays(self) -> list[int]:
        """Return the places whose agents look for the others where nobody is any more."""
        return [place for place in self._ready if self._told.get(place) not in (None, *self._ready.values())]

    def needs(self, place: int) -> bool:
        """Tell whether a place is to have an agent: not once any has finished, for then the run has."""
        return not self._finished and place not in self._finished

    def is_over(self, running: int) -> bool:
        """Tell whether nothing is left to wait for.

        Args:
            running: agents that run.
        """
        return bool(self._finished) and not running

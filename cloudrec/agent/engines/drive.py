"""The driver of a run in a Ray cluster that others use too: `cloudrec.agent drive LAUNCH_FILE`, a Ray job.

It requests all machines at once, each on a separate node, and keeps an agent on each of them as in a Ray
cluster that only the run uses. It writes their state to RESULTS/ray/LAUNCH.json, which the launcher reads.
When the job is stopped, the agents commit a checkpoint and end.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.agent.engines.ray import RayLaunch, connect, read_launch
from cloudrec.agent.engines.supervision import AgentChange
from cloudrec.agent.settings import PodSettings
from cloudrec.errors import CloudrecError, StorageError
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.results_store import open_place
from cloudrec.launchers.ray.report import AgentReport, LaunchReport
from cloudrec_contract.exit_codes import FAILED, FINISHED, STOPPED, UNFIT_NODE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.agent.engines.supervision import AgentEvent, AgentState, LaunchRequest
    from cloudrec.launchers.base.results_store import Place

_POLL_S = 0.25
_REFRESH_S = 1.0  # between two requests for the agents' states
_LAST_ANSWER_S = 5.0  # for an actor whose agent has ended


class ScheduledLaunch(RayLaunch):
    """Drives a launch on a placement group of a Ray cluster, and reports the state of each agent.

    Args:
        ray: the module, connected to its cluster.
        launch: the launch.
        settings: the settings that are the same for all agents.
    """

    poll_s = _POLL_S

    def __init__(self, ray: Any, launch: LaunchRequest, settings: PodSettings) -> None:  # noqa: ANN401 - untyped
        super().__init__(ray, launch)
        self._settings = settings
        self._place: Place = open_place(settings.results)
        self._state, self._cause = RunState.PENDING, ""
        self._code: int | None = None
        self._agents: dict[int, AgentReport] = {}
        self._written = b""
        self._stopped = self._has_run = False
        self._group: Any = None
        self._state_calls: dict[Any, int] = {}
        self._refreshed = 0.0

    def drive(self) -> int:
        """Return the run's exit code; the report has the cause of the end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        self._write_report()
        code = self._find_machines()
        if code is None:
            code = self.run()
        self._clear()  # the storage has all files, and the next launch reads them from there
        self._code = code
        self._cause = self._cause if code != FINISHED else ""
        self._write_report()
        return code

    def is_stopped(self) -> bool:
        """Return whether a stop of the job was requested; refresh the report on the way."""
        self._refresh()
        return self._stopped

    def placement(self, place: int) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the place's bundle of the placement group, and its agent's environment."""
        from ray.util.scheduling_strategies import (  # noqa: PLC0415 - what the driver alone needs
            PlacementGroupSchedulingStrategy,
        )

        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=place)
        environment = {**self._launch.environment, "CLOUDREC_PLACE": str(place)}
        self._agents[place] = AgentReport()
        return {"scheduling_strategy": strategy}, environment

    def record(self, event: AgentEvent) -> None:
        """Write an event to the log and to the report."""
        super().record(event)
        place, agent = event.place, self._agents[event.place]
        if event.change is AgentChange.PLACED:
            self._agents[place] = replace(agent, node=event.address)
        elif event.change is AgentChange.LOST:
            self._agents[place] = replace(agent, state="lost", cause=str(event))
            self._cause = str(event)
        elif event.change is AgentChange.ENDED and event.code != FINISHED:
            self._update(place, self._actors[place].state.remote())
            self._cause = self._agents[place].cause or self._cause
        self._write_report()

    def cause_of(self, place: int) -> str:
        """Return why a place's agent has ended, from the report."""
        return self._agents[place].cause

    def _find_machines(self) -> int | None:
        """Wait for all machines; return None, or the exit code if the wait ends without them."""
        from ray.util import placement_group  # noqa: PLC0415 - what the driver alone needs

        launch = self._launch
        bundle = {"CPU": launch.cpus} | ({"GPU": launch.gpus} if launch.gpus else {})
        # STRICT_SPREAD: two agents on one machine would share its disk and its network.
        self._group = placement_group([bundle] * launch.nodes, strategy="STRICT_SPREAD")
        ready, give_up = self._group.ready(), time.monotonic() + (launch.wait_s or float("inf"))
        while not self._ray.wait([ready], timeout=_POLL_S)[0]:
            if self._stopped:
                return self._end(STOPPED, "stopped on request while it waited for machines")
            lacks = f"the run needs {_needed(launch)}; {_available(self._ray)}"
            if time.monotonic() > give_up:
                return self._end(UNFIT_NODE, f"{lacks}: not found within {launch.wait_s:g} s")
            self._cause = f"waiting for machines: {lacks}"
            self._write_report()
        self._cause = "its trainer is starting"
        return None

    def _clear(self) -> None:
        calls = [actor.clear.remote() for actor in self._actors.values()]
        self._ray.wait(calls, num_returns=len(calls), timeout=_LAST_ANSWER_S)

    def _end(self, code: int, cause: str) -> int:
        self._cause = cause
        print(f"error: {cause}", flush=True)
        return code

    def _refresh(self) -> None:
        """Read the states that have arrived, and request new ones; wait for none of them."""
        if self._state_calls:
            done, _ = self._ray.wait(list(self._state_calls), num_returns=len(self._state_calls), timeout=0)
            for call in done:
                self._update(self._state_calls.pop(call), call)
        if time.monotonic() - self._refreshed < _REFRESH_S:
            return
        self._refreshed = time.monotonic()
        # One request for each actor: a slow one would otherwise collect them, up to its limit of calls.
        for place in set(self._running().values()) - set(self._state_calls.values()):
            self._state_calls[self._actors[place].state.remote()] = place
        self._judge()

    def _update(self, place: int, call: Any) -> None:  # noqa: ANN401 - untyped
        try:
            state: AgentState = self._ray.get(call, timeout=_LAST_ANSWER_S)
        except self._ray.exceptions.RayError:
            return  # its machine is lost, or slow: the result of `run` will show which
        self._agents[place] = replace(self._agents[place], **asdict(state))

    def _judge(self) -> None:
        """Set the state of the launch by the states of its agents."""
        states = [agent.state for agent in self._agents.values()]
        working = states.count("at work") + states.count("ended")
        if working >= self._launch.min_nodes and "restarting" not in states:
            self._has_run = True
            self._state, self._cause = RunState.RUNNING, ""
        elif self._has_run:
            self._state = RunState.RESTARTING
            causes = [agent.cause for agent in self._agents.values() if agent.state != "at work"]
            self._cause = next((cause for cause in causes if cause), self._cause)
        self._write_report()

    def _write_report(self) -> None:
        """Write the report if it has changed. The run continues if the storage refuses it."""
        report = LaunchReport(
            launch=self._settings.launch,
            state=self._state,
            cause=self._cause,
            places=self._agents,
            code=self._code,
        )
        content = report.encode()
        if content == self._written:
            return
        try:
            self._place.write(f"ray/{report.launch}.json", content)
            self._written = content
        except StorageError as error:
            print(f"[driver] warning: {error.message}", flush=True)

    def _on_stop(self, _number: int, _frame: object) -> None:
        self._stopped = True


def main(arguments: list[str]) -> int:
    """Drive a run to its end; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cloudrec.agent drive", allow_abbrev=False)
    parser.add_argument("launch_file", type=Path, help="the JSON file that describes the launch")
    launch = read_launch(parser.parse_args(arguments).launch_file)
    os.environ.update(launch.environment)
    settings = PodSettings.from_environment(os.environ)
    ray = connect()
    try:
        return ScheduledLaunch(ray, launch, settings).drive()
    except CloudrecError as error:
        print(f"error: {error.message}", flush=True)
        return FAILED


def _needed(launch: LaunchRequest) -> str:
    """Return the machines that a launch needs, as text."""
    each = f"{launch.cpus:g} CPUs" + (f" and {launch.gpus} GPUs" if launch.gpus else "")
    machines = f"{launch.nodes} nodes" if launch.nodes > 1 else "1 node"
    return f"{machines} with {each}{' each' if launch.nodes > 1 else ''}"


def _available(ray: Any) -> str:  # noqa: ANN401 - untyped
    """Return the nodes of a Ray cluster and its free resources, as text."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    has = [f"{node['NodeManagerAddress']} ({_amounts(node['Resources'])})" for node in nodes]
    free = _amounts(ray.available_resources())
    return f"the Ray cluster has {len(nodes)}: {', '.join(has)}; free are {free}"


def _amounts(resources: Mapping[str, float]) -> str:
    amounts: Sequence[str] = [f"{resources.get(name, 0):g} {name}s" for name in ("CPU", "GPU")]
    return ", ".join(amounts)

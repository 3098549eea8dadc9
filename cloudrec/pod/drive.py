"""The driver of a run in a Ray cluster that others use too: `cloudrec.pod drive LAUNCH_FILE`, a Ray job.

It asks Ray for all machines at once, each on a node of its own, keeps an agent on each of them as in a Ray
cluster of the run alone, and writes how they are to RESULTS/ray/LAUNCH.json, for whoever launched it. Told to
stop, it has the agents commit a checkpoint and end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError, StorageError
from cloudrec.launch.place import open_place
from cloudrec.pod.codes import AGAIN, CRASHED, FINISHED, UNFIT
from cloudrec.pod.course import Look
from cloudrec.pod.ray import Driver, connect, read_launch
from cloudrec.pod.settings import PodSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.launch.place import Place
    from cloudrec.pod.course import Launch

_POLL_S = 0.25
_LOOK_S = 1.0
_LAST_LOOK_S = 5.0


@dataclass
class Report:
    """What RESULTS/ray/LAUNCH.json tells.

    Args:
        launch: which launch of the run.
        state: PENDING, RUNNING or RESTARTING; an end is the job's to tell.
        cause: what it waits for, or why it ended.
        places: each place's machine, and what its ranks do.
        code: the run's exit code, once it has ended.
    """

    launch: int
    state: str = "PENDING"
    cause: str = ""
    places: dict[int, dict[str, Any]] = field(default_factory=dict)
    code: int | None = None


class ClusterDriver(Driver):
    """Drives a launch on machines that Ray finds for it.

    Args:
        ray: the module, connected to its cluster.
        launch: the launch.
        settings: what agents are told, as far as it is the same for all.
    """

    poll_s = _POLL_S

    def __init__(self, ray: Any, launch: Launch, settings: PodSettings) -> None:  # noqa: ANN401 - untyped
        super().__init__(ray, launch)
        self._settings = settings
        self._place: Place = open_place(settings.results)
        self._report = Report(launch=settings.launch)
        self._written = ""
        self._stopped = self._has_run = False
        self._group: Any = None
        self._looks: dict[Any, int] = {}
        self._looked = 0.0

    def drive(self) -> int:
        """Return the run's exit code; what ended it is in the report."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        self._tell()
        code = self._find_machines()
        if code is None:
            code = self.run()
        self._clear()  # all of it is in the storage, and the next launch begins from there
        self._report.code = code
        self._report.cause = self._report.cause if code != FINISHED else ""
        self._tell()
        return code

    def is_stopped(self) -> bool:
        """Tell whether the job was told to stop; look at the agents now and then."""
        self._look()
        return self._stopped

    def seat(self, place: int) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the place's share of the machines that were found, and its agent's environment."""
        from ray.util.scheduling_strategies import (  # noqa: PLC0415 - what the driver alone needs
            PlacementGroupSchedulingStrategy,
        )

        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=place)
        environment = {**self._launch.environment, "CLOUDREC_PLACE": str(place)}
        self._report.places[place] = {"node": "", **asdict(Look())}
        return {"scheduling_strategy": strategy}, environment

    def heard(self, place: int, word: str) -> None:
        """Keep the place's newest word for the report."""
        super().heard(place, word)
        if word.startswith("is at "):
            self._report.places[place]["node"] = word.removeprefix("is at ")
        elif "gone" in word:
            self._report.places[place] |= {"state": "lost", "cause": f"agent {place} {word}"}
            self._report.cause = f"agent {place} {word}"
        elif word.startswith("ended with ") and word != f"ended with {FINISHED}":
            self._last_look(place)
        self._tell()

    def cause_of(self, place: int) -> str:
        """Return why a place's agent has ended, as the report has it already."""
        return str(self._report.places[place]["cause"])

    def _find_machines(self) -> int | None:
        """Wait for all machines; return the code to end with where they do not come."""
        from ray.util import placement_group  # noqa: PLC0415 - what the driver alone needs

        launch = self._launch
        bundle = {"CPU": launch.cpus} | ({"GPU": launch.gpus} if launch.gpus else {})
        self._group = placement_group([bundle] * launch.nodes, strategy="STRICT_SPREAD")
        ready, give_up = self._group.ready(), time.monotonic() + (launch.wait_s or float("inf"))
        while not self._ray.wait([ready], timeout=_POLL_S)[0]:
            if self._stopped:
                return self._end(AGAIN, "told to stop while it waited for machines")
            lacks = f"{_asked(launch)}; {_there(self._ray)}"
            if time.monotonic() > give_up:
                return self._end(UNFIT, f"{lacks}: not had within {launch.wait_s:g} s")
            self._report.cause = f"waiting for machines: {lacks}"
            self._tell()
        self._report.cause = "its trainer is starting"
        return None

    def _clear(self) -> None:
        asked = [actor.clear.remote() for actor in self._actors.values()]
        self._ray.wait(asked, num_returns=len(asked), timeout=_LAST_LOOK_S)

    def _end(self, code: int, cause: str) -> int:
        self._report.cause = cause
        print(f"error: {cause}", flush=True)
        return code

    def _look(self) -> None:
        """Ask agents what their ranks do, and hear what they said, without waiting for any."""
        if self._looks:
            said, _ = self._ray.wait(list(self._looks), num_returns=len(self._looks), timeout=0)
            for answer in said:
                self._take(self._looks.pop(answer), answer)
        if time.monotonic() - self._looked < _LOOK_S:
            return
        self._looked = time.monotonic()
        running = [place for place, question in self._waited.values() if question == "run"]
        for place in set(running) - set(self._looks.values()):
            self._looks[self._actors[place].look.remote()] = place
        self._judge()

    def _last_look(self, place: int) -> None:
        self._take(place, self._actors[place].look.remote())
        self._report.cause = self._report.places[place]["cause"] or self._report.cause

    def _take(self, place: int, answer: Any) -> None:  # noqa: ANN401 - untyped
        try:
            self._report.places[place] |= asdict(self._ray.get(answer, timeout=_LAST_LOOK_S))
        except self._ray.exceptions.RayError:
            return  # its machine is gone, or slow: its run's answer tells

    def _judge(self) -> None:
        """Make one state out of all places'."""
        states = [each["state"] for each in self._report.places.values()]
        working = states.count("at work") + states.count("ended")
        report = self._report
        if working >= self._launch.min_nodes and "restarting" not in states:
            self._has_run = True
            report.state, report.cause = "RUNNING", ""
        elif self._has_run:
            report.state = "RESTARTING"
            told = [each["cause"] for each in report.places.values() if each["state"] != "at work"]
            report.cause = next((cause for cause in told if cause), report.cause)
        self._tell()

    def _tell(self) -> None:
        """Write the report where it has changed; a store that refuses ends nothing."""
        text = json.dumps(asdict(self._report), indent=2)
        if text == self._written:
            return
        try:
            self._place.write(f"ray/{self._report.launch}.json", text.encode())
            self._written = text
        except StorageError as error:
            print(f"[driver] warning: {error.message}", flush=True)

    def _on_stop(self, _number: int, _frame: object) -> None:
        self._stopped = True


def main(arguments: list[str]) -> int:
    """Drive a run to its end; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cloudrec.pod drive", allow_abbrev=False)
    parser.add_argument("launch_file", type=Path, help="what to start, where and how often")
    launch = read_launch(parser.parse_args(arguments).launch_file)
    os.environ.update(launch.environment)
    settings = PodSettings.from_environment(os.environ)
    ray = connect()
    try:
        return ClusterDriver(ray, launch, settings).drive()
    except CloudrecError as error:
        print(f"error: {error.message}", flush=True)
        return CRASHED


def _asked(launch: Launch) -> str:
    """Say what a launch asks for."""
    each = f"{launch.cpus:g} CPUs" + (f" and {launch.gpus} GPUs" if launch.gpus else "")
    machines = f"{launch.nodes} nodes" if launch.nodes > 1 else "1 node"
    return f"{machines} with {each}{' each' if launch.nodes > 1 else ''} asked for"


def _there(ray: Any) -> str:  # noqa: ANN401 - untyped
    """Say what a Ray cluster has, and how much of it is free."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    has = [f"{node['NodeManagerAddress']} ({_amounts(node['Resources'])})" for node in nodes]
    free = _amounts(ray.available_resources())
    return f"the Ray cluster has {len(nodes)}: {', '.join(has)}; free are {free}"


def _amounts(resources: Mapping[str, float]) -> str:
    amounts: Sequence[str] = [f"{resources.get(name, 0):g} {name}s" for name in ("CPU", "GPU")]
    return ", ".join(amounts)

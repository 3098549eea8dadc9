"""The driver of a run in a Ray cluster: `cloudrec.pod ray LAUNCH_FILE`, at the cluster's head.

Ray finds the machines; each gets one agent, as any other launcher's pods do, and the agents find each other.
An agent must be able to end in its own time: Ray is told not to kill what its workers started, and
`cloudrec.pod ray --stop`, which a worker's pod runs before it is stopped, asks the agent and waits for it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.errors import MissingExtraError, UsageError
from cloudrec.home import write_atomically
from cloudrec.pod.codes import AGAIN, FINISHED
from cloudrec.pod.course import LOST, Course, Launch
from cloudrec.pod.settings import PodSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

_PID_FILE, _STOP_FILE, _LOCK_FILE = "ray-agent.pid", "ray-stop", "ray-lock"
_POLL_S = 0.2
_PAUSE_S = 1.0  # before another agent in the same place
_CONTAINER_OUTPUT = Path("/proc/1/fd/1")  # what the pod's log is made of; Ray keeps its workers' elsewhere


class Node:
    """One machine's agent: an actor in the driver's eyes."""

    def __init__(self) -> None:
        self._settings = PodSettings.from_environment(os.environ)
        self._work = self._settings.work

    def address(self) -> str:
        """Return where other machines reach this one."""
        import ray  # noqa: PLC0415 - what the driver alone needs

        return os.environ.get("POD_IP") or str(ray.util.get_node_ip_address())

    def run(self, command: list[str], pause_s: float) -> int:
        """Run an agent to its end; return its exit code, as a shell would tell it.

        Args:
            command: the agent's.
            pause_s: seconds before it is started.
        """
        self._work.mkdir(parents=True, exist_ok=True)
        time.sleep(pause_s)
        _end(self._settings)  # one that an actor before this one has left: it would train beside ours
        with _alone(self._work), _output() as output:
            if (self._work / _STOP_FILE).exists():
                return AGAIN  # this pod is about to go
            agent = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
            write_atomically(self._work / _PID_FILE, str(agent.pid))
        code = agent.wait()
        (self._work / _PID_FILE).unlink(missing_ok=True)
        return code if code >= 0 else 128 - code

    def stop(self) -> None:
        """Ask the agent to end."""
        _ask(self._work)


class Driver:
    """Keeps an agent on every machine that the launch is to have, until the run has ended.

    Args:
        ray: the module, connected to its cluster.
        launch: the launch.
    """

    def __init__(self, ray: Any, launch: Launch) -> None:  # noqa: ANN401 - untyped
        self._ray = ray
        self._launch = launch
        self._course = Course(launch)
        self._actors: dict[int, Any] = {}
        self._waited: dict[Any, tuple[int, str]] = {}  # what Ray will answer: whose, and to which question

    def run(self) -> int:
        """Return the run's exit code."""
        for place in range(self._launch.nodes):
            self._seek(place)
        while not self._course.is_over(self._running()):
            done, _ = self._ray.wait(list(self._waited), num_returns=1)
            for answer in done:
                place, question = self._waited.pop(answer)
                code = self._note(place, question, answer)
                if code is not None:
                    return self._give_up(code)
        return FINISHED

    def _seek(self, place: int) -> None:
        """Ask Ray for a machine, which may take until there is one."""
        asked = self._ray.remote(Node).options(
            num_cpus=1, num_gpus=self._launch.gpus, max_restarts=0, max_concurrency=2
        )
        actor = self._actors[place] = asked.remote()
        self._waited[actor.address.remote()] = (place, "address")

    def _note(self, place: int, question: str, answer: Any) -> int | None:  # noqa: ANN401 - untyped
        """Take an answer, and do what follows from it; return the code that ends the run, if it does."""
        try:
            said = self._ray.get(answer)
        except self._ray.exceptions.RayActorError:
            print(f"[driver] the machine of agent {place} is gone", flush=True)
            self._course.ended(place, LOST)
            if self._course.needs(place):
                self._seek(place)
            return None
        if question == "address":
            self._course.ready(place, said)
            self._start(place, pause_s=0.0)
            return None
        print(f"[driver] agent {place} ended with {said}", flush=True)
        code = self._course.ended(place, said)
        if code is None:
            self._start(place, pause_s=_PAUSE_S)
        return code

    def _start(self, place: int, *, pause_s: float) -> None:
        if self._course.needs(place):
            run = self._actors[place].run.remote(self._course.command(place), pause_s)
            self._waited[run] = (place, "run")

    def _running(self) -> int:
        return sum(question == "run" for _, question in self._waited.values())

    def _give_up(self, code: int) -> int:
        """Ask all agents to end, and wait until they have; what ended the run is how it ended."""
        running = [answer for answer, (_, question) in self._waited.items() if question == "run"]
        for place, question in self._waited.values():
            if question == "run":
                self._actors[place].stop.remote()
        grace = PodSettings.from_environment(os.environ).grace_s
        if running:
            self._ray.wait(running, num_returns=len(running), timeout=grace)
        return code


def main(arguments: list[str]) -> int:
    """Drive a run to its end, or end this machine's agent; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cloudrec.pod ray", allow_abbrev=False)
    parser.add_argument("launch_file", nargs="?", type=Path, help="what to start, where and how often")
    parser.add_argument("--stop", action="store_true", help="end this pod's agent, and wait for its end")
    options = parser.parse_args(arguments)
    if options.stop:
        return stop(PodSettings.from_environment(os.environ))
    if options.launch_file is None:
        raise UsageError("no launch's file is named")
    launch = _read(options.launch_file)
    return Driver(_connect(), launch).run()


def stop(settings: PodSettings) -> int:
    """Let no other agent begin in this pod, and end the one that runs, in as much time as the pod has."""
    settings.work.mkdir(parents=True, exist_ok=True)
    with _alone(settings.work):  # an agent that is being started is one by the time that it is looked for
        (settings.work / _STOP_FILE).touch()
    _end(settings)
    return 0


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Keep starting an agent and ending it apart."""
    with (work / _LOCK_FILE).open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _end(settings: PodSettings) -> None:
    """Ask the agent to end, and wait for it; once, since an agent that is asked again hurries."""
    pid = _ask(settings.work)
    give_up = time.monotonic() + settings.grace_s
    while pid is not None and _is_alive(pid) and time.monotonic() < give_up:
        time.sleep(_POLL_S)


def _ask(work: Path) -> int | None:
    """Send SIGTERM to the agent; return its process id, or None where there is none."""
    with suppress(OSError, ValueError):
        pid = int((work / _PID_FILE).read_text(encoding="utf-8"))
        os.kill(pid, signal.SIGTERM)
        return pid
    return None


def _is_alive(pid: int) -> bool:
    """Tell whether a process does anything yet: one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _read(path: Path) -> Launch:
    try:
        return Launch.of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error


def _connect() -> Any:  # noqa: ANN401 - untyped
    try:
        import ray  # noqa: PLC0415 - what the driver alone needs
    except ImportError as error:
        raise MissingExtraError("ray", module="ray") from error
    ray.init(log_to_driver=False)
    return ray


def _output() -> Any:  # noqa: ANN401 - a file of bytes
    """Return the pod's own output, or where that is another's, this process's."""
    try:
        return _CONTAINER_OUTPUT.open("ab", buffering=0)
    except OSError:
        return os.fdopen(os.dup(1), "ab", buffering=0)

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
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.errors import MissingExtraError, UsageError
from cloudrec.home import write_atomically
from cloudrec.pod.codes import AGAIN, FINISHED
from cloudrec.pod.course import LOST, Course, Launch, Look
from cloudrec.pod.settings import PARENT, PodSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PID_FILE, _STOP_FILE, _LOCK_FILE = "ray-agent.pid", "ray-stop", "ray-lock"
_POLL_S = 0.2
_LOOK_S = 5.0  # for an actor to tell what its ranks do
_CONVERSATIONS = 3  # at once with an actor: its agent's run, a look at it, and the wish that it end
_PAUSE_S = 1.0  # before another agent in the same place
_CONTAINER_OUTPUT = Path("/proc/1/fd/1")  # what the pod's log is made of; Ray keeps its workers' elsewhere


class Node:
    """One machine's agent: an actor in the driver's eyes.

    Args:
        environment: variables on top of the machine's own, where those do not tell all.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        if environment:
            os.environ.update(_own_environment(environment))
        self._settings = PodSettings.from_environment(os.environ)
        self._work = self._settings.work

    def address(self, port: int) -> tuple[str, int]:
        """Return where other machines reach this one, and a port there.

        Args:
            port: the port; 0 for one that is free.
        """
        host = os.environ.get("POD_IP") or _own_address()
        return host, port or _free_port(host)

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
            agent = subprocess.Popen(
                command, env=_environment(), stdout=output, stderr=output, start_new_session=True
            )
            write_atomically(self._work / _PID_FILE, str(agent.pid))
        code = agent.wait()
        (self._work / _PID_FILE).unlink(missing_ok=True)
        return code if code >= 0 else 128 - code

    def look(self) -> Look:
        """Tell what the agent's ranks do."""
        events = self._settings.folder.ledger.read()
        return Look.of([event for event in events if event.launch == self._settings.launch])

    def clear(self) -> None:
        """Remove what the agent has left on this machine's disk."""
        shutil.rmtree(self._work, ignore_errors=True)

    def stop(self) -> None:
        """Ask the agent to end."""
        _ask(self._work)


class Driver:
    """Keeps an agent on every machine that the launch is to have, until the run has ended.

    Args:
        ray: the module, connected to its cluster.
        launch: the launch.

    Attributes:
        poll_s: seconds between two looks at whether the run is to end; None where nobody can ask for that.
    """

    poll_s: float | None = None

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
            done, _ = self._ray.wait(list(self._waited), num_returns=1, timeout=self.poll_s)
            for answer in done:
                place, question = self._waited.pop(answer)
                code = self._note(place, question, answer)
                if code is not None:
                    return self._give_up(code)
            if self.is_stopped():
                return self._give_up(AGAIN)
        return FINISHED

    def is_stopped(self) -> bool:
        """Tell whether somebody wants the run to end."""
        return False

    def seat(self, place: int) -> tuple[dict[str, Any], dict[str, str]]:
        """Return what to ask of Ray for a place beyond cores and GPUs, and the environment of its agent."""
        del place
        return {}, {}

    def heard(self, place: int, word: str) -> None:
        """Take note of what became of a place's machine or agent."""
        print(f"[driver] agent {place} {word}", flush=True)

    def _seek(self, place: int) -> None:
        """Ask Ray for a machine, which may take until there is one."""
        more, environment = self.seat(place)
        asked = self._ray.remote(Node).options(
            num_cpus=self._launch.cpus,
            num_gpus=self._launch.gpus,
            max_restarts=0,
            max_concurrency=_CONVERSATIONS,
            **more,
        )
        actor = self._actors[place] = asked.remote(environment)
        self._waited[actor.address.remote(self._launch.port)] = (place, "address")

    def _note(self, place: int, question: str, answer: Any) -> int | None:  # noqa: ANN401 - untyped
        """Take an answer, and do what follows from it; return the code that ends the run, if it does."""
        try:
            said = self._ray.get(answer)
        except self._ray.exceptions.RayActorError:
            self.heard(place, "is gone, with its process or its machine")
            self._course.ended(place, LOST)
            if self._course.needs(place):
                self._seek(place)
                self._gather()
            return None
        if question == "address":
            self._course.ready(place, *said)
            self.heard(place, f"is at {said[0]}")
            self._start(place, pause_s=0.0)
            return None
        self.heard(place, f"ended with {said}")
        code = self._course.ended(place, said)
        if code is None:
            self._start(place, pause_s=_PAUSE_S)
        elif cause := self.cause_of(place):
            print(f"error: {cause}", flush=True)  # Ray tells the last lines of a job that failed
        return code

    def cause_of(self, place: int) -> str:
        """Return why a place's agent has ended; empty where it cannot be asked, or does not know."""
        try:
            look: Look = self._ray.get(self._actors[place].look.remote(), timeout=_LOOK_S)
        except self._ray.exceptions.RayError:
            return ""
        return look.cause

    def _start(self, place: int, *, pause_s: float) -> None:
        if self._course.needs(place):
            run = self._actors[place].run.remote(self._course.command(place), pause_s)
            self._waited[run] = (place, "run")

    def _gather(self) -> None:
        """Have agents that would wait for a machine that is gone end, to be sent elsewhere."""
        running = {place for place, question in self._waited.values() if question == "run"}
        for place in running.intersection(self._course.strays()):
            self.heard(place, "is to meet the others elsewhere")
            self._actors[place].stop.remote()

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
    launch = read_launch(options.launch_file)
    return Driver(connect(), launch).run()


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


def read_launch(path: Path) -> Launch:
    """Read what is to be driven; UsageError where it is damaged, or of another version."""
    try:
        return Launch.of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error


def connect() -> Any:  # noqa: ANN401 - untyped
    """Return Ray, connected to the cluster that this process is in; MissingExtraError without it."""
    try:
        import ray  # noqa: PLC0415 - what the driver alone needs
    except ImportError as error:
        raise MissingExtraError("ray", module="ray") from error
    ray.init(log_to_driver=False)
    return ray


def _output() -> Any:  # noqa: ANN401 - a file of bytes
    """Return the pod's own output; outside a pod, or where that is another's, this process's."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        with suppress(OSError):
            return _CONTAINER_OUTPUT.open("ab", buffering=0)
    return os.fdopen(os.dup(1), "ab", buffering=0)


def _own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Complete what a driver tells an agent by what only the agent's machine knows."""
    host = _own_address()
    name = f"{environment['CLOUDREC_JOB']}-{environment['CLOUDREC_PLACE']}"
    base = Path(tempfile.gettempdir()) / f"cloudrec-{os.getuid()}"
    own = {"POD_NAME": f"{name}-{host}", "NODE_NAME": host, "CLOUDREC_WORK": str(base / name)}
    if host.startswith("127."):
        own |= dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "lo")
    return {**own, **environment, PARENT: str(os.getpid())}


def _own_address() -> str:
    """Return the address by which Ray knows this node; its own function guesses at another interface."""
    import ray  # noqa: PLC0415 - what actors alone need

    here = ray.get_runtime_context().get_node_id()
    return next(str(node["NodeManagerAddress"]) for node in ray.nodes() if node["NodeID"] == here)


def _environment() -> dict[str, str]:
    """Return an agent's environment: what it calls python is what runs here."""
    own = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{own}{os.pathsep}{os.environ.get('PATH', '')}"}


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port

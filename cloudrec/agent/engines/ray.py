"""The driver of a run in a Ray cluster: `cloudrec.agent ray LAUNCH_FILE`, at the cluster's head.

Ray finds the machines. Each gets one agent, as each pod of the other launchers does, and the agents find each
other. An agent needs time to save a checkpoint before it ends. Ray is therefore configured not to kill the
processes that its workers started, and a worker's pod runs `cloudrec.agent ray --stop` before it is stopped:
that command ends the agent and waits for it.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.agent.engines.supervision import (
    LOST,
    AgentChange,
    AgentEvent,
    AgentState,
    LaunchProgress,
    LaunchRequest,
)
from cloudrec.agent.settings import PARENT, PodSettings
from cloudrec.errors import MissingExtraError, UsageError
from cloudrec.home import read_text, write_atomically
from cloudrec.process.ports import free_port
from cloudrec_contract.exit_codes import FINISHED, STOPPED
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PID_FILE, _STOP_FILE, _LOCK_FILE = "ray-agent.pid", "ray-stop", "ray-lock"
_POLL_S = 0.2
_STATE_S = 5.0  # the driver waits this long for the state of an agent
# Calls that an actor answers at the same time: `run`, which lasts as long as the agent, `state` and `stop`.
_CONCURRENT_CALLS = 3
_PAUSE_S = 1.0  # before another agent in the same place
# The pod's log is the output of its first process; Ray writes the output of its workers to files.
_CONTAINER_OUTPUT = Path("/proc/1/fd/1")


class Node:
    """A Ray actor that runs the agent of one machine.

    Args:
        environment: variables to add to the machine's own; None to add none.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        if environment:
            os.environ.update(_own_environment(environment))
        self._settings = PodSettings.from_environment(os.environ)
        self._work = self._settings.work

    def address(self, port: int) -> tuple[str, int]:
        """Return the address by which other machines reach this one, and a port.

        Args:
            port: the port to return; 0 to find a free one.
        """
        host = os.environ.get("POD_IP") or _own_address()
        return host, port or free_port(host)

    def run(self, command: list[str], pause_s: float) -> int:
        """Run an agent to its end; return its exit code, as a shell would report it.

        Args:
            command: the agent's command.
            pause_s: seconds to wait before the start.
        """
        self._work.mkdir(parents=True, exist_ok=True)
        time.sleep(pause_s)
        # An earlier actor may have left an agent, since Ray does not kill it: it would train beside this one.
        _end(self._settings)
        with _alone(self._work), _output() as output:
            if (self._work / _STOP_FILE).exists():
                return STOPPED  # this pod is being stopped
            agent = subprocess.Popen(
                command, env=_environment(), stdout=output, stderr=output, start_new_session=True
            )
            write_atomically(self._work / _PID_FILE, str(agent.pid))
        code = agent.wait()
        (self._work / _PID_FILE).unlink(missing_ok=True)
        return code if code >= 0 else 128 - code

    def state(self) -> AgentState:
        """Return the state of the agent's ranks."""
        events = self._settings.folder.ledger.read()
        return AgentState.of([event for event in events if event.launch == self._settings.launch])

    def clear(self) -> None:
        """Remove the agent's files from this machine's disk."""
        shutil.rmtree(self._work, ignore_errors=True)

    def stop(self) -> None:
        """Signal the agent to end; return at once."""
        _signal(self._work)


class RayLaunch:
    """Keeps an agent on every node of a launch until the run has ended.

    Args:
        ray: the module, connected to its cluster.
        launch: the launch.

    Attributes:
        poll_s: seconds between two calls of `is_stopped`; None if a stop cannot be requested.
    """

    poll_s: float | None = None

    def __init__(self, ray: Any, launch: LaunchRequest) -> None:  # noqa: ANN401 - untyped
        self._ray = ray
        self._launch = launch
        self._progress = LaunchProgress(launch)
        self._actors: dict[int, Any] = {}
        # The calls of actors that have not returned: the actor's place, and the method, "address" or "run".
        self._calls: dict[Any, tuple[int, str]] = {}

    def run(self) -> int:
        """Return the run's exit code."""
        for place in range(self._launch.nodes):
            self._request_machine(place)
        while not self._progress.is_over(len(self._running())):
            done, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=self.poll_s)
            for call in done:
                place, method = self._calls.pop(call)
                code = self._handle(place, method, call)
                if code is not None:
                    return self._stop_all(code)
            if self.is_stopped():
                return self._stop_all(STOPPED)
        return FINISHED

    def is_stopped(self) -> bool:
        """Return whether a stop of the run was requested."""
        return False

    def placement(self, place: int) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the options of a place's actor besides cores and GPUs, and the environment of its agent."""
        del place
        return {}, {}

    def record(self, event: AgentEvent) -> None:
        """Write an event to the driver's log."""
        print(f"[driver] {event}", flush=True)

    def _request_machine(self, place: int) -> None:
        """Start a place's actor. Ray keeps the request until a machine is free."""
        options, environment = self.placement(place)
        actor_class = self._ray.remote(Node).options(
            num_cpus=self._launch.cpus,
            num_gpus=self._launch.gpus,
            # The driver replaces a lost actor, since the new machine has another address.
            max_restarts=0,
            max_concurrency=_CONCURRENT_CALLS,
            **options,
        )
        actor = self._actors[place] = actor_class.remote(environment)
        self._calls[actor.address.remote(self._launch.port)] = (place, "address")

    def _handle(self, place: int, method: str, call: Any) -> int | None:  # noqa: ANN401 - untyped
        """Handle a call that has returned; return the code that ends the run, or None if it continues."""
        try:
            result = self._ray.get(call)
        except self._ray.exceptions.RayActorError:
            self.record(AgentEvent(change=AgentChange.LOST, place=place))
            self._progress.ended(place, LOST)
            if self._progress.needs(place):
                self._request_machine(place)
                self._move_outdated()
            return None
        if method == "address":
            self._progress.ready(place, *result)
            self.record(AgentEvent(change=AgentChange.PLACED, place=place, address=result[0]))
            self._start(place, pause_s=0.0)
            return None
        self.record(AgentEvent(change=AgentChange.ENDED, place=place, code=result))
        code = self._progress.ended(place, result)
        if code is None:
            self._start(place, pause_s=_PAUSE_S)
        elif cause := self.cause_of(place):
            print(f"error: {cause}", flush=True)  # Ray reports the last lines of a job that failed
        return code

    def cause_of(self, place: int) -> str:
        """Return why a place's agent has ended; empty if the cause is unknown or the actor is lost."""
        try:
            state: AgentState = self._ray.get(self._actors[place].state.remote(), timeout=_STATE_S)
        except self._ray.exceptions.RayError:
            return ""
        return state.cause

    def _start(self, place: int, *, pause_s: float) -> None:
        if self._progress.needs(place):
            call = self._actors[place].run.remote(self._progress.command(place), pause_s)
            self._calls[call] = (place, "run")

    def _move_outdated(self) -> None:
        """Stop the agents that use a rendezvous on a lost machine; they start again with the new one."""
        for place in set(self._running().values()).intersection(self._progress.outdated()):
            self.record(AgentEvent(change=AgentChange.MOVED, place=place))
            self._actors[place].stop.remote()

    def _running(self) -> dict[Any, int]:
        """Return the agents that run: the place of each by its call."""
        return {call: place for call, (place, method) in self._calls.items() if method == "run"}

    def _stop_all(self, code: int) -> int:
        """Stop all agents, wait until they have ended or the grace is over, and return `code`."""
        running = list(self._running())
        for place in self._running().values():
            self._actors[place].stop.remote()
        grace = PodSettings.from_environment(os.environ).grace_s
        if running:
            self._ray.wait(running, num_returns=len(running), timeout=grace)
        return code


def main(arguments: list[str]) -> int:
    """Drive a run to its end, or end this machine's agent; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cloudrec.agent ray", allow_abbrev=False)
    parser.add_argument("launch_file", nargs="?", type=Path, help="the JSON file that describes the launch")
    parser.add_argument("--stop", action="store_true", help="stop this pod's agent and wait for its end")
    options = parser.parse_args(arguments)
    if options.stop:
        return stop(PodSettings.from_environment(os.environ))
    if options.launch_file is None:
        raise UsageError("no launch file is given", remedy="give the path of launch.json, or --stop")
    launch = read_launch(options.launch_file)
    return RayLaunch(connect(), launch).run()


def stop(settings: PodSettings) -> int:
    """Prevent further agents in this pod and end the one that runs, within the pod's grace; return 0."""
    settings.work.mkdir(parents=True, exist_ok=True)
    # The lock waits for a start in progress: afterwards its pid is in the file, or the stop file prevents it.
    with _alone(settings.work):
        (settings.work / _STOP_FILE).touch()
    _end(settings)
    return 0


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Hold the lock that prevents a start and a stop of the agent at the same time."""
    with (work / _LOCK_FILE).open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _end(settings: PodSettings) -> None:
    """Signal the agent to end, and wait until it has or the grace is over."""
    pid = _signal(settings.work)
    give_up = time.monotonic() + settings.grace_s
    while pid is not None and _is_alive(pid) and time.monotonic() < give_up:
        time.sleep(_POLL_S)


def _signal(work: Path) -> int | None:
    """Send SIGTERM to the agent; return its process id, or None if no agent runs."""
    with suppress(OSError, ValueError):
        pid = int((work / _PID_FILE).read_text(encoding="utf-8"))
        os.kill(pid, signal.SIGTERM)
        return pid
    return None


def _is_alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def read_launch(path: Path) -> LaunchRequest:
    """Return the launch that a file describes; UsageError if it is damaged or of another version."""
    try:
        return LaunchRequest.of(safe_object(read_text(path)))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error


def connect() -> Any:  # noqa: ANN401 - untyped
    """Return the module `ray`, connected to its cluster; MissingExtraError if it is not installed."""
    try:
        import ray  # noqa: PLC0415 - what the driver alone needs
    except ImportError as error:
        raise MissingExtraError("ray", module="ray") from error
    ray.init(log_to_driver=False)
    return ray


def _output() -> Any:  # noqa: ANN401 - a file of bytes
    """Return the pod's output; outside a pod, or if it cannot be opened, the output of this process."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        with suppress(OSError):
            return _CONTAINER_OUTPUT.open("ab", buffering=0)
    return os.fdopen(os.dup(1), "ab", buffering=0)


def _own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the driver's variables for an agent, with those that only the agent's machine knows."""
    host = _own_address()
    name = f"{environment['CLOUDREC_JOB']}-{environment['CLOUDREC_PLACE']}"
    base = Path(tempfile.gettempdir()) / f"cloudrec-{os.getuid()}"
    own = {"POD_NAME": f"{name}-{host}", "NODE_NAME": host, "CLOUDREC_WORK": str(base / name)}
    if host.startswith("127."):
        # gloo and nccl would choose another interface, where a node at a loopback address is not reached.
        own |= dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "lo")
    return {**own, **environment, PARENT: str(os.getpid())}


def _own_address() -> str:
    """Return the address by which Ray knows this node."""
    import ray  # noqa: PLC0415 - what actors alone need

    # `ray.util.get_node_ip_address` guesses, and may return the address of another interface.
    here = ray.get_runtime_context().get_node_id()
    return next(str(node["NodeManagerAddress"]) for node in ray.nodes() if node["NodeID"] == here)


def _environment() -> dict[str, str]:
    """Return an agent's environment, in which `python` is the interpreter of this process."""
    own = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{own}{os.pathsep}{os.environ.get('PATH', '')}"}

"""One container of a pod over all its starts: its state in the status, its logs, its events."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.kubelet.pods.environment import MissingReferenceError
from cloudrec_sandbox.kubernetes.kubelet.pods.spec import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.kubelet.pods.pod import PodWorker
    from cloudrec_sandbox.kubernetes.kubelet.processes.logs import Log
    from cloudrec_sandbox.kubernetes.kubelet.processes.process import Running

INIT, SIDECAR, MAIN = "init", "sidecar", "main"
_FIRST_BACKOFF_S = 10.0
_LONGEST_BACKOFF_S = 300.0
_FORGET_AFTER_S = 600.0
_MESSAGE_BYTES, _FALLBACK_BYTES, _FALLBACK_LINES = 4096, 2048, 80
_START_ERROR = 128
_KILLED = 137
_RUNTIME = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    "runc create failed: unable to start container process: error during container init: "
)


class Instance:
    """A container, which listens to its own process; used in the kubelet's thread only."""

    def __init__(self, worker: PodWorker, container: Mapping[str, Any], role: str) -> None:
        self.worker = worker
        self.container = container
        self.name: str = container["name"]
        self.role = role
        self.running: Running | None = None
        self.state: dict[str, Any] = {"waiting": {"reason": worker.first_reason(role)}}
        self.last_state: dict[str, Any] = {}
        self.restarts = 0
        self.identity = ""
        self.has_started = False  # it has started, and its startup probe, if any, has succeeded
        self.is_ready = False
        self.pid = 0
        self.ran_out_of_memory = False
        self.logs: list[Log] = []
        self.is_stopping = False
        self._is_resized = False
        self.is_resting = False  # it waits for a back-off to end
        self._backoff_s = 0.0
        self._pulls = 0

    @property
    def is_live(self) -> bool:
        """Return whether it has a process, or is getting one."""
        return self.running is not None

    @property
    def code(self) -> int | None:
        """Return its exit code; None if it has not ended."""
        ended = self.state.get("terminated")
        return int(ended["exitCode"]) if ended else None

    @property
    def is_done(self) -> bool:
        """Return whether it has ended and will not be started again."""
        return self.code is not None and not self._is_to_restart()

    def resize(self, wanted: Mapping[str, Any]) -> bool:
        """Take new requests and limits; return whether its resize policy demands a restart."""
        old, new = self.container.get("resources") or {}, wanted.get("resources") or {}
        if new == old:
            return False
        self.container, self._is_resized = {**self.container, "resources": new}, True
        self.worker.changed()
        changed = {
            name
            for field in ("requests", "limits")
            for name in {*(old.get(field) or {}), *(new.get(field) or {})}
            if (old.get(field) or {}).get(name) != (new.get(field) or {}).get(name)
        }
        return self.is_live and any(
            each["resourceName"] in changed and each["restartPolicy"] == "RestartContainer"
            for each in wanted.get("resizePolicy") or ()
        )

    def start(self) -> None:
        """Start it, unless it runs or waits."""
        if self.is_live or self.is_resting or not self._has_image():
            return
        try:
            self.running = self.worker.launch(self)
        except (MissingReferenceError, ConfigError) as error:
            self._wait("CreateContainerConfigError", str(error))
            self._record("Failed", f"Error: {error}", warning=True)
            self._rest(_FIRST_BACKOFF_S)
            return
        # Counted from the second start on: the first is no restart.
        if self.identity:
            self.restarts += 1
        if self.code is not None:
            self.last_state = self.state
        self.identity = f"containerd://{secrets.token_hex(32)}"
        self.has_started = self.is_ready = self.ran_out_of_memory = False
        if "waiting" not in self.state:
            self._wait("ContainerCreating")
        self._record("Created", f"Container created: {self.name}")

    def started(self, pid: int) -> None:
        """Note that it runs."""
        self.pid = pid
        self.state = {"running": {"startedAt": self.worker.cluster.timestamp()}}
        self._record("Started", "Container started")
        self.worker.probe(self)
        self.worker.changed()

    def refused(self, reason: str, message: str) -> None:
        """Note that it could not be started."""
        message = f"{_RUNTIME}{message}: unknown" if reason == "StartError" else message
        self._record("Failed", f"Error: {message}", warning=True)
        self._finish(_START_ERROR, reason, message)

    def ended(self, code: int) -> None:
        """Note that it has ended."""
        reason = "OOMKilled" if self.ran_out_of_memory else "Error" if code else "Completed"
        self._finish(_KILLED if self.ran_out_of_memory else code, reason, self._message(code))

    def said(self, data: bytes) -> None:
        """Keep its output."""
        self.logs[-1].write(data)

    def status(self) -> dict[str, Any]:
        """Return its entry in the pod's status."""
        image = self.container["image"]
        status = {
            "name": self.name,
            "image": image,
            "imageID": f"{image.partition('@')[0]}@sha256:{'0' * 64}" if "@" not in image else image,
            "restartCount": self.restarts,
            "ready": self.is_ready,
            "started": self.has_started,
            "state": self.state,
            "lastState": self.last_state,
        }
        if self.identity:
            status["containerID"] = self.identity
        if self.restarts == 0 and not self.identity:
            status["imageID"] = ""
        if self._is_resized:
            resources = self.container.get("resources") or {}
            status |= {"allocatedResources": resources.get("requests") or {}, "resources": resources}
        return status

    def forget_running(self) -> None:
        """Forget its process, which was killed without a report."""
        self.running = None

    def _finish(self, code: int, reason: str, message: str) -> None:
        now = self.worker.cluster.timestamp()
        begun = self.state.get("running", {}).get("startedAt", now)
        self.running, self.pid, self.has_started, self.is_ready = None, 0, False, False
        ended = {
            "exitCode": code,
            "reason": reason,
            "startedAt": begun,
            "finishedAt": now,
            "containerID": self.identity,
        }
        self.state = {"terminated": {**ended, **({"message": message} if message else {})}}
        self.logs[-1].close()
        if self._is_to_restart() and not self.worker.is_ending:
            self._back_off()
        self.worker.changed()

    def _is_to_restart(self) -> bool:
        policy = self.worker.pod["spec"].get("restartPolicy", "Always")
        if self.role == SIDECAR:
            return not self.worker.is_over()
        # A container's own rules come first, then its own policy, then the pod's (KEP-5307).
        policy = self.container.get("restartPolicy", policy)
        if self._has_rule():
            return True
        if self.role == INIT:
            return self.code != 0 and policy != "Never"
        return policy == "Always" or (policy == "OnFailure" and self.code != 0)

    def _has_rule(self) -> bool:
        """Return whether a rule restarts it after its exit code; the action is `Restart` alone here."""
        for rule in self.container.get("restartPolicyRules") or ():
            codes = rule["exitCodes"]
            is_listed = self.code in (codes.get("values") or ())
            if rule["action"] == "Restart" and is_listed == (codes["operator"] == "In"):
                return True
        return False

    def _back_off(self) -> None:
        """Wait before the next start: not at all at first, then twice as long each time."""
        wait, self._backoff_s = (
            self._backoff_s,
            min(max(self._backoff_s * 2, _FIRST_BACKOFF_S), _LONGEST_BACKOFF_S),
        )
        if not wait:
            return
        pod = self.worker.pod["metadata"]
        text = (
            f"back-off {_duration(wait)} restarting failed container={self.name} "
            f"pod={pod['name']}_{pod['namespace']}({pod['uid']})"
        )
        self.last_state = self.state
        self._wait("CrashLoopBackOff", text)
        where = f"{pod['name']}_{pod['namespace']}({pod['uid']})"
        self._record(
            "BackOff", f"Back-off restarting failed container {self.name} in pod {where}", warning=True
        )
        self._rest(wait)

    def _has_image(self) -> bool:
        image = self.container["image"]
        problem = self.worker.image_problem(image)
        if problem is None:
            self._record("Pulled", f'Container image "{image}" already present on machine')
            return True
        reason, message = problem
        if reason == "InvalidImageName":
            self._record("InspectFailed", message, warning=True)
            self._record("Failed", f"Error: {reason}", warning=True)
            self._wait(reason, message)
        else:
            self._record("Pulling", f'Pulling image "{image}"')
            self._record("Failed", f'Failed to pull image "{image}": {message}', warning=True)
            self._record("Failed", f"Error: {reason}", warning=True)
            self._wait(reason, message)
        self.is_resting = True
        self.worker.loop.after_virtual(1.0, lambda: self._pull_back_off(message))
        return False

    def _pull_back_off(self, message: str) -> None:
        image = self.container["image"]
        self._pulls += 1
        if self.state.get("waiting", {}).get("reason") == "ErrImagePull":
            text = f'Back-off pulling image "{image}"'
            self._record("BackOff", text)
            self._record("Failed", "Error: ImagePullBackOff", warning=True)
            self._wait("ImagePullBackOff", f"{text}: ErrImagePull: {message}")
        self._rest(min(_FIRST_BACKOFF_S * 2 ** (self._pulls - 1), _LONGEST_BACKOFF_S))

    def _rest(self, seconds: float) -> None:
        self.is_resting = True
        self.worker.loop.after_virtual(seconds, self._wake)

    def _wake(self) -> None:
        self.is_resting = False
        self.worker.changed()

    def _wait(self, reason: str, message: str = "") -> None:
        self.state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        self.worker.changed()

    def _message(self, code: int) -> str:
        text = self.worker.termination_text(self.name)[-_MESSAGE_BYTES:]
        if not text and code and self.container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            text = self.logs[-1].end(_FALLBACK_BYTES, _FALLBACK_LINES)
        return text

    def _record(self, reason: str, message: str, *, warning: bool = False) -> None:
        where = "containers" if self.role == MAIN else "initContainers"
        self.worker.record(reason, message, warning=warning, field=f"spec.{where}{{{self.name}}}")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"

"""A pod on its node: volumes, containers in their order, restarts, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.kubelet.pods.instance import INIT, MAIN, SIDECAR, Instance
from cloudrec_sandbox.kubernetes.kubelet.pods.preparation import Preparation
from cloudrec_sandbox.kubernetes.kubelet.pods.probes import Probes
from cloudrec_sandbox.kubernetes.kubelet.pods.status import pod_phase, pod_status
from cloudrec_sandbox.kubernetes.kubelet.pods.volumes import VolumeError
from cloudrec_sandbox.kubernetes.storage.mirror import is_ending as is_to_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.kubelet.node.machine import Machine
    from cloudrec_sandbox.kubernetes.kubelet.pods.agent import Kubelet
    from cloudrec_sandbox.kubernetes.kubelet.processes.loop import Loop
    from cloudrec_sandbox.kubernetes.kubelet.processes.process import Running
    from cloudrec_sandbox.kubernetes.storage.cluster import Cluster

_SOURCE = "kubelet"
_OVER = ("Succeeded", "Failed")
_TERM, _KILL = 15, 9
_DEFAULT_GRACE_S = 30
_MOUNT_AGAIN_S = 1.0
_SHUTDOWN = "Pod was terminated in response to imminent node shutdown."


class PodWorker:
    """One pod; used in the kubelet's thread only."""

    def __init__(self, kubelet: Kubelet, machine: Machine, pod: Mapping[str, Any]) -> None:
        self.cluster: Cluster = kubelet.cluster
        self.loop: Loop = kubelet.loop
        self.machine = machine
        self.pod = pod
        self.is_ending = False
        self.ip = kubelet.network.addresses.take()
        self.folder = kubelet.folder / "pods" / pod["metadata"]["uid"]
        self._kubelet = kubelet
        self._started_at = self.cluster.timestamp()
        self._problem = ""  # why it was not admitted
        self._shutdown = False  # the node ends: then the pod fails, and its object stays
        self._deadline_passed = False
        self._published: dict[str, Any] = {}
        self._is_due = False
        self._is_waiting_for_volumes = False
        self._probes = Probes(self.loop, kubelet.network.pool)
        spec = pod["spec"]
        inits = [
            Instance(self, each, SIDECAR if each.get("restartPolicy") == "Always" else INIT)
            for each in spec.get("initContainers") or ()
        ]
        self.instances = [*inits, *(Instance(self, each, MAIN) for each in spec["containers"])]
        self._preparation = Preparation(kubelet, machine, pod, address=self.ip, folder=self.folder)

    def begin(self) -> None:
        """Start the pod."""
        self.folder.mkdir(parents=True)
        if not self._kubelet.books_only:
            self._kubelet.names.add(self.pod, self.ip, self.folder / "hosts")
        for instance in self.instances:
            sight = self.machine.devices.take(self.pod["metadata"]["uid"], instance.container)
            if isinstance(sight, str):
                self._problem = sight
                self.record("UnexpectedAdmissionError", sight, warning=True)
                break
            self.machine.sights[self.pod["metadata"]["uid"], instance.name] = sight
        self.changed()

    def update(self, pod: Mapping[str, Any]) -> None:
        """Take the pod's new state."""
        self.pod = self._preparation.pod = pod
        self._resize()
        if is_to_end(pod) and not self.is_ending:
            self.end(float(pod["metadata"].get("deletionGracePeriodSeconds") or 0))

    def _resize(self) -> None:
        """Give the containers their new requests and limits; restart those whose policy demands it."""
        spec = self.pod["spec"]
        wanted = {each["name"]: each for each in (*(spec.get("initContainers") or ()), *spec["containers"])}
        grace_s = float(spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S))
        for instance in self.instances:
            if instance.resize(wanted[instance.name]):
                self._stop(instance, grace_s)
                self._kill_after(instance, grace_s)

    def end(self, grace_s: float, *, by_shutdown: bool = False) -> None:
        """End its containers, by force once `grace_s` real seconds have passed."""
        self.is_ending = True
        self._shutdown = by_shutdown and not self.is_over()
        self._probes.close()
        for instance in self._live(MAIN, INIT):
            self.record("Killing", f"Stopping container {instance.name}", field=_field(instance))
            self._stop(instance, grace_s)
        self.loop.after(grace_s, self._force)
        self.changed()

    def kill(self) -> None:
        """End its processes at once and report nothing: the pod, or the node, is gone."""
        self.is_ending = True
        self._probes.close()
        for instance in self.instances:
            if instance.running is not None:
                self._kubelet.kill(instance.running)
                instance.forget_running()
                instance.logs[-1].close()
        self.clean()

    def clean(self) -> None:
        """Release its devices, names, address, network and volumes."""
        self.machine.devices.release(self.pod["metadata"]["uid"])
        self._kubelet.names.drop(self.pod["metadata"]["uid"])
        self._kubelet.network.addresses.give_back(self.ip)
        self._kubelet.network.unplug(self.pod["metadata"]["uid"])
        self._preparation.volumes.remove()

    def changed(self) -> None:
        """Continue, and publish the status, once the present step is done."""
        if not self._is_due:
            self._is_due = True
            self.loop.soon(self._continue)

    def is_over(self) -> bool:
        """Return whether its main containers have ended permanently."""
        return all(each.is_done for each in self.instances if each.role == MAIN)

    def first_reason(self, role: str) -> str:
        """Return the reason of a container that has not started."""
        has_inits = bool(self.pod["spec"].get("initContainers"))
        return "PodInitializing" if role == MAIN and has_inits else "ContainerCreating"

    def image_problem(self, image: str) -> tuple[str, str] | None:
        """Return why an image cannot be pulled; None if it can."""
        return self._kubelet.image_problem(image)

    def record(self, reason: str, message: str, *, warning: bool = False, field: str = "") -> None:
        """Record an event about the pod; for a simulated pod only warnings."""
        if self._kubelet.books_only and not warning:
            return
        self.cluster.event(
            self.pod, reason, message, source=_SOURCE, host=self.machine.name, warning=warning, field=field
        )

    def probe(self, instance: Instance) -> None:
        """Start the probes of a container that has started."""
        self._probes.watch(instance, self.ip)

    def termination_text(self, name: str) -> str:
        """Return a container's termination message."""
        path = self.folder / f"{name}.termination"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def launch(self, instance: Instance) -> Running:
        """Start a container's process; ConfigError or MissingReferenceError if its spec is wrong."""
        folder = self.folder / "containers" / f"{instance.name}-{len(instance.logs)}"
        return self._kubelet.launch(instance, folder, lambda: self._preparation.spec(instance))

    def _continue(self) -> None:
        self._is_due = False
        if self.machine.is_gone:
            return
        if not self._problem and not self.is_ending and self._has_volumes():
            self._start_next()
        self._end_sidecars()
        self._publish()
        if self.is_ending and not any(each.is_live for each in self.instances):
            self._bury()

    def _start_next(self) -> None:
        # Init containers run one after the other; a sidecar only has to start before the next one.
        for instance in self.instances:
            if instance.role == INIT:
                if instance.code == 0:
                    continue
                if not instance.is_done:
                    instance.start()
                return
            if instance.role == SIDECAR:
                if not self.is_over():
                    instance.start()
                if not instance.has_started and not self.is_over():
                    return
            elif not instance.is_done:
                instance.start()

    def _has_volumes(self) -> bool:
        if self._is_waiting_for_volumes:
            return False
        try:
            self._preparation.volumes.prepare()
        except VolumeError as error:
            self.record("FailedMount", str(error), warning=True)
            self._is_waiting_for_volumes = True
            self.loop.after(_MOUNT_AGAIN_S, self._mount_again)
            return False
        return True

    def _mount_again(self) -> None:
        self._is_waiting_for_volumes = False
        self.changed()

    def _end_sidecars(self) -> None:
        """End the sidecars once the main containers have ended."""
        is_over = self.is_ending or self.is_over() or pod_phase(self.pod, self.instances) == "Failed"
        if not is_over or self._live(MAIN, INIT):
            return
        for instance in self._live(SIDECAR):
            if not instance.is_stopping:
                instance.is_stopping = True
                self._stop(
                    instance, float(self.pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S))
                )

    def _stop(self, instance: Instance, grace_s: float) -> None:
        running = instance.running
        if running is None:
            return
        # The preStop hook runs within the grace, before SIGTERM (Kubernetes, "Container Lifecycle Hooks").
        hook = ((instance.container.get("lifecycle") or {}).get("preStop") or {}).get("exec")
        if hook and grace_s > 0:
            running.execute(hook["command"], lambda _code, _said: running.signal(_TERM))
        else:
            running.signal(_TERM)
        if instance.role == SIDECAR:
            self._kill_after(instance, grace_s)

    def _kill_after(self, instance: Instance, grace_s: float) -> None:
        running = instance.running
        if running is not None:
            self.loop.after(grace_s, lambda: running.signal(_KILL) if instance.running is running else None)

    def _force(self) -> None:
        for instance in self._live(MAIN, INIT, SIDECAR):
            if instance.running is not None:
                instance.running.signal(_KILL)

    def _live(self, *roles: str) -> list[Instance]:
        return [each for each in self.instances if each.is_live and each.role in roles]

    def _publish(self) -> None:
        phase = "Failed" if self._problem else pod_phase(self.pod, self.instances, is_ending=self.is_ending)
        # The kubelet's graceful node shutdown fails its pods, even those whose containers then exit with 0.
        if self._shutdown and phase == "Succeeded":
            phase = "Failed"
        if phase in _OVER:
            # An ended pod is kept as an object, but its devices are free for other pods.
            self.machine.devices.release(self.pod["metadata"]["uid"])
        with self.cluster.store.lock:
            metadata = self.pod["metadata"]
            current = self.cluster.mirror.get("pods", metadata["namespace"], metadata["name"])
            if current is None or current["metadata"]["uid"] != metadata["uid"]:
                return
            status = pod_status(
                current,
                self.instances,
                phase=phase,
                ip=self.ip,
                host_ip=self.machine.address,
                started_at=self._started_at,
                moment=self.cluster.timestamp(),
            )
            if self._problem:
                status |= {"reason": "UnexpectedAdmissionError", "message": self._problem}
            if self._shutdown:
                status |= {"reason": "Terminated", "message": _SHUTDOWN}
            if status != self._published:
                self._published = status
                self.cluster.patch_status("pods", current, status)

    def _bury(self) -> None:
        """Remove the object, since all processes have ended."""
        if self._shutdown and not is_to_end(self.pod):
            return
        metadata = self.pod["metadata"]
        self._kubelet.forget(metadata["uid"])
        self.cluster.attempt(
            lambda: self.cluster.store.delete(
                "pods", metadata["namespace"], metadata["name"], 0, preconditions={"uid": metadata["uid"]}
            )
        )


def _field(instance: Instance) -> str:
    where = "containers" if instance.role == MAIN else "initContainers"
    return f"spec.{where}{{{instance.name}}}"

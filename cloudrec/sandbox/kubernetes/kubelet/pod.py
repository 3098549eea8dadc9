"""A pod on its node: volumes, containers in their order, restarts, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.kubernetes.kubelet.instance import INIT, MAIN, SIDECAR, Instance
from cloudrec.sandbox.kubernetes.kubelet.preparation import Preparation
from cloudrec.sandbox.kubernetes.kubelet.probes import Probes
from cloudrec.sandbox.kubernetes.kubelet.status import pod_phase, pod_status
from cloudrec.sandbox.kubernetes.kubelet.volumes import VolumeError
from cloudrec.sandbox.kubernetes.mirror import is_ending as is_to_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.sandbox.kubernetes.cluster import Cluster
    from cloudrec.sandbox.kubernetes.kubelet.agent import Kubelet
    from cloudrec.sandbox.kubernetes.kubelet.loop import Loop
    from cloudrec.sandbox.kubernetes.kubelet.machine import Machine
    from cloudrec.sandbox.kubernetes.kubelet.process import Running

_SOURCE = "kubelet"
_OVER = ("Succeeded", "Failed")
_TERM, _KILL = 15, 9
_DEFAULT_GRACE_S = 30
_MOUNT_AGAIN_S = 1.0
_SHUTDOWN = "Pod was terminated in response to imminent node shutdown."


class PodWorker:
    """One pod; used in the kubelet's thread alone."""

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
        self._shutdown = False  # the node goes down: the pod fails, it is not deleted
        self._deadline_passed = False
        self._told: dict[str, Any] = {}
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
        """Start to look after it."""
        self.folder.mkdir(parents=True)
        if not self._kubelet.books_only:
            self._kubelet.names.add(self.pod, self.ip, self.folder / "hosts")
        for instance in self.instances:
            sight = self.machine.devices.take(self.pod["metadata"]["uid"], instance.container)
            if isinstance(sight, str):
                self._problem = sight
                self.tell("UnexpectedAdmissionError", sight, warning=True)
                break
            self.machine.sights[self.pod["metadata"]["uid"], instance.name] = sight
        self.changed()

    def update(self, pod: Mapping[str, Any]) -> None:
        """Know the pod as it is now."""
        self.pod = self._preparation.pod = pod
        if is_to_end(pod) and not self.is_ending:
            self.end(float(pod["metadata"].get("deletionGracePeriodSeconds") or 0))

    def end(self, grace_s: float, *, by_shutdown: bool = False) -> None:
        """End its containers, by force once `grace_s` real seconds have passed."""
        self.is_ending = True
        self._shutdown = by_shutdown
        self._probes.close()
        for instance in self._live(MAIN, INIT):
            self.tell("Killing", f"Stopping container {instance.name}", field=_field(instance))
            self._stop(instance, grace_s)
        self.loop.after(grace_s, self._force)
        self.changed()

    def kill(self) -> None:
        """End its processes at once without a word: the pod, or the node, is gone."""
        self.is_ending = True
        self._probes.close()
        for instance in self.instances:
            if instance.running is not None:
                self._kubelet.kill(instance.running)
                instance.forget_running()
                instance.logs[-1].close()
        self.clean()

    def clean(self) -> None:
        """Give back what it had."""
        self.machine.devices.release(self.pod["metadata"]["uid"])
        self._kubelet.names.drop(self.pod["metadata"]["uid"])
        self._kubelet.network.addresses.give_back(self.ip)
        self._kubelet.network.unplug(self.pod["metadata"]["uid"])
        self._preparation.volumes.remove()

    def changed(self) -> None:
        """Something has changed: go on, and tell, once what is under way is done."""
        if not self._is_due:
            self._is_due = True
            self.loop.soon(self._go_on)

    def is_over(self) -> bool:
        """Whether its main containers have ended for good."""
        return all(each.is_done for each in self.instances if each.role == MAIN)

    def first_reason(self, role: str) -> str:
        """Why a container has not begun."""
        has_inits = bool(self.pod["spec"].get("initContainers"))
        return "PodInitializing" if role == MAIN and has_inits else "ContainerCreating"

    def image_problem(self, image: str) -> tuple[str, str] | None:
        """Why an image cannot be had."""
        return self._kubelet.image_problem(image)

    def tell(self, reason: str, message: str, *, warning: bool = False, field: str = "") -> None:
        """Record an event about the pod; one that is but kept in the books makes little ado."""
        if self._kubelet.books_only and not warning:
            return
        self.cluster.event(
            self.pod, reason, message, source=_SOURCE, host=self.machine.name, warning=warning, field=field
        )

    def probe(self, instance: Instance) -> None:
        """Look whether a container that has started is alive, ready."""
        self._probes.watch(instance, self.ip)

    def termination_text(self, name: str) -> str:
        """What a container wrote as its last words."""
        path = self.folder / f"{name}.termination"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def launch(self, instance: Instance) -> Running:
        """Start a container's process; ConfigError, MissingReferenceError where its words are wrong."""
        folder = self.folder / "containers" / f"{instance.name}-{len(instance.logs)}"
        return self._kubelet.launch(instance, folder, lambda: self._preparation.spec(instance))

    def _go_on(self) -> None:
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
            self.tell("FailedMount", str(error), warning=True)
            self._is_waiting_for_volumes = True
            self.loop.after(_MOUNT_AGAIN_S, self._mount_again)
            return False
        return True

    def _mount_again(self) -> None:
        self._is_waiting_for_volumes = False
        self.changed()

    def _end_sidecars(self) -> None:
        """Sidecars end once the main containers have."""
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
        hook = ((instance.container.get("lifecycle") or {}).get("preStop") or {}).get("exec")
        if hook and grace_s > 0:
            running.execute(hook["command"], lambda _code, _said: running.signal(_TERM))
        else:
            running.signal(_TERM)
        if instance.role == SIDECAR:
            self.loop.after(grace_s, lambda: running.signal(_KILL) if instance.running is running else None)

    def _force(self) -> None:
        for instance in self._live(MAIN, INIT, SIDECAR):
            if instance.running is not None:
                instance.running.signal(_KILL)

    def _live(self, *roles: str) -> list[Instance]:
        return [each for each in self.instances if each.is_live and each.role in roles]

    def _publish(self) -> None:
        phase = "Failed" if self._problem else pod_phase(self.pod, self.instances, is_ending=self.is_ending)
        if phase in _OVER:
            self.machine.devices.release(self.pod["metadata"]["uid"])  # others may have them while it is kept
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
            if status != self._told:
                self._told = status
                self.cluster.patch_status("pods", current, status)

    def _bury(self) -> None:
        """All its processes have ended: the object may go."""
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

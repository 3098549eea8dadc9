"""The kubelet of all nodes: one thread that runs every pod that is bound to one of them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.kubelet.cni.names import Names
from cloudrec_sandbox.kubernetes.kubelet.cni.network import Network
from cloudrec_sandbox.kubernetes.kubelet.node import memory
from cloudrec_sandbox.kubernetes.kubelet.node.accounts import Accounts
from cloudrec_sandbox.kubernetes.kubelet.node.images import Images
from cloudrec_sandbox.kubernetes.kubelet.node.shell import NodeShell, enters_node
from cloudrec_sandbox.kubernetes.kubelet.node.workplace import Workplace
from cloudrec_sandbox.kubernetes.kubelet.pods.instance import INIT
from cloudrec_sandbox.kubernetes.kubelet.pods.pod import PodWorker
from cloudrec_sandbox.kubernetes.kubelet.processes.logs import Log
from cloudrec_sandbox.kubernetes.kubelet.processes.loop import Loop
from cloudrec_sandbox.kubernetes.kubelet.processes.process import Process
from cloudrec_sandbox.kubernetes.kubelet.processes.programs import RDMA, Simulated, program_of, release_of
from cloudrec_sandbox.kubernetes.objects.quantities import amount

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cloudrec_sandbox.kubernetes.kubelet.node.machine import Machine
    from cloudrec_sandbox.kubernetes.kubelet.pods.instance import Instance
    from cloudrec_sandbox.kubernetes.kubelet.processes.process import Running
    from cloudrec_sandbox.kubernetes.kubelet.processes.programs import Program
    from cloudrec_sandbox.kubernetes.storage.cluster import Cluster

_MEMORY_LOOK_S = 0.25
_RDMA_DEFAULT = {"rdma/hca_shared_devices_a": 63}
_KILL = 9
# Where doca-driver keeps the modules that it has built: the image sets the variable, and the entrypoint ends
# if there is no such folder (README.md and the entrypoint of Mellanox/doca-driver-build).
_INVENTORY, _INVENTORY_FOLDER = "NVIDIA_NIC_DRIVERS_INVENTORY_PATH", "/mnt/drivers-inventory"
# The file by which doca-driver reports that it is ready; the Network Operator's own pods wait for it.
_DRIVER_READY = "/run/mellanox/drivers/.driver-ready"
_DRIVER_LOOK_S = 0.2


class Kubelet:
    """Runs pods. With `books_only`, pods that start from then on are only simulated, without processes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.loop = Loop(cluster.clock)
        self._workplace = Workplace()
        self.folder = self._workplace.path
        self.images = Images()
        self.names = Names(cluster)
        self.network = Network()
        self.machines: dict[str, Machine] = {}
        self.books_only = False
        self.given: dict[str, str] = {}  # variables that a cloud adds to its pods: identity, endpoints
        self.bookkeeping: dict[str, Any] = {}  # how simulated pods end, and what they print
        self.accounts = Accounts(cluster.store)
        self.workers: dict[str, PodWorker] = {}
        self.programs: dict[str, set[str]] = {}  # by operator: uids of pods in which its program runs
        self._are_names_due = False
        self._is_watching_memory = False

    def start(self) -> None:
        """Start its thread."""
        self.cluster.mirror.subscribe(self._note)
        self.loop.start()

    def close(self) -> None:
        """End every process."""
        self.loop.close(self._kill_all)
        self.network.close()
        self._workplace.remove()

    def join(self, machine: Machine) -> None:
        """Run a node's pods from now on."""
        self.machines[machine.name] = machine
        with self.cluster.store.lock:
            for pod in self.cluster.mirror.on_node(machine.name):
                self._note("ADDED", "pods", pod)

    def leave(self, machine: Machine) -> None:
        """Kill the processes of a node that is gone, and report nothing; return at once."""
        machine.is_gone = True
        self.machines.pop(machine.name, None)
        self.loop.soon(lambda: self._kill_on(machine))

    def shut_down(self, machine: Machine, grace_s: float) -> None:
        """Let a node's pods end within the grace, since the node is going to end."""
        self.loop.soon(lambda: self._shut_down(machine, grace_s))

    def worker(self, uid: str) -> PodWorker | None:
        """Return the worker of a pod; None if it does not run here."""
        return self.workers.get(uid)

    def forget(self, uid: str) -> None:
        """Clean up after a pod that has ended, before its object is removed."""
        worker = self.workers.get(uid)
        if worker is not None:
            worker.clean()

    def image_problem(self, image: str) -> tuple[str, str] | None:
        """Return why an image cannot be pulled; None if it can."""
        return self.images.problem(image, is_program=program_of(image) is not None or self.books_only)

    def launch(self, instance: Instance, folder: Path, spec: Callable[[], dict[str, Any]]) -> Running:
        """Start a container in its own new folder; `spec` may refuse."""
        program = program_of(instance.container["image"])
        wanted = None if program is not None or self.books_only else spec()
        folder.mkdir(parents=True)
        instance.logs.append(Log(folder / "log", self.cluster.clock))
        if wanted is None:
            return self._launch_program(instance, program) if program else self._keep_books(instance)
        limit = ((instance.container.get("resources") or {}).get("limits") or {}).get("memory")
        if limit is not None and not self._is_watching_memory:
            self._is_watching_memory = True
            self.loop.after(_MEMORY_LOOK_S, self._watch_memory)
        return Process(folder, wanted, selector=self.loop.selector, listener=instance)

    @staticmethod
    def kill(running: Running) -> None:
        """End a container's processes at once."""
        running.kill()

    def _launch_program(self, instance: Instance, program: Program) -> Running:
        names = self._rdma_names(instance) if program.plugin == RDMA else {}
        listener = _Plugged(instance, self, program=program, names=names)
        if instance.role == INIT and _waits_for_driver(instance):
            running = Simulated(listener, defer=self.loop.soon, says=[f"waiting for {_DRIVER_READY}"])
            self.loop.after(_DRIVER_LOOK_S, lambda: self._end_with_driver(instance, running))
            return running
        if program.driver and release_of(image := instance.container["image"]) not in _words(instance):
            text = f"{image} has no packages for {instance.worker.machine.os_image}"
            return Simulated(instance, defer=self.loop.soon, says=[text], ends_with=1)
        if enters_node(instance.worker.pod, instance.container):
            return self._enter_node(instance)
        if program.driver and (missing := _inventory(instance)):
            text = f"path from {_INVENTORY} environment variable is not accessible: {missing}"
            return Simulated(instance, defer=self.loop.soon, says=[text], ends_with=1)
        ends_with = 0 if instance.role == INIT else None
        return Simulated(listener, defer=self.loop.soon, says=[program.says], ends_with=ends_with)

    def _enter_node(self, instance: Instance) -> Running:
        """Run a container's command in its node's mount namespace; it stays until it is ended."""
        machine, container = instance.worker.machine, instance.container
        shell = NodeShell(self.folder / "shared" / "nodes" / machine.name, machine.hardware)
        _, said = shell.run([*(container.get("command") or ()), *(container.get("args") or ())])
        return Simulated(instance, defer=self.loop.soon, says=said.splitlines(), runs=shell.run)

    def _end_with_driver(self, instance: Instance, running: Simulated) -> None:
        """End a container that waits for the modules of the RDMA cards once they are loaded."""
        if _sees_driver(instance):
            running.end(0)
        elif instance.is_live:
            self.loop.after(_DRIVER_LOOK_S, lambda: self._end_with_driver(instance, running))

    def _keep_books(self, instance: Instance) -> Running:
        wish = self.bookkeeping
        code = int(wish.get("exit_code", 0))
        wait = 0 if instance.role == INIT else wish.get("run_s")
        pod = instance.worker.pod
        host = pod["spec"].get("hostname") or pod["metadata"]["name"]
        says = (wish.get("logs") or {}).get(host, wish.get("log", ()))
        stop = int(wish.get("stop_code", 0))
        running = Simulated(instance, defer=self.loop.soon, says=says, stops_with=stop)
        if wait is not None:
            self.loop.after_virtual(float(wait), lambda: running.end(code))
        return running

    def _rdma_names(self, instance: Instance) -> dict[str, int]:
        """Return the resources that an RDMA plugin's configuration names."""
        # The plugins of the Network Operator get their resources from a ConfigMap that their pod mounts.
        namespace = instance.worker.pod["metadata"]["namespace"]
        for volume in instance.worker.pod["spec"].get("volumes") or ():
            if "configMap" in volume:
                config = self.cluster.store.get("configmaps", namespace, volume["configMap"]["name"])
                for text in (config or {}).get("data", {}).values():
                    wish = json.loads(text)
                    cards = instance.worker.machine.hardware.get("infiniband", 0)  # exclusive, unless shared
                    return {
                        f"{each.get('resourcePrefix') or 'rdma'}/{each['resourceName']}": int(
                            each.get("rdmaHcaMax", cards)
                        )
                        for each in wish.get("configList") or wish.get("resourceList") or ()
                    }
        return dict(_RDMA_DEFAULT)

    def _note(self, event: str, resource: str, obj: dict[str, Any]) -> None:
        """Take note of a change; called in the thread that made it."""
        if resource == "pods" and obj["spec"].get("nodeName"):
            self.loop.soon(lambda: self._sync(event, obj))
        if resource in ("pods", "services") and not self._are_names_due:
            self._are_names_due = True
            self.loop.soon(self._write_names)

    def _write_names(self) -> None:
        self._are_names_due = False
        self.names.write()

    def _sync(self, event: str, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        worker = self.workers.get(uid)
        if event == "DELETED":
            if worker is not None:
                del self.workers[uid]
                worker.kill()
                shutil.rmtree(worker.folder, ignore_errors=True)
        elif worker is None or self._is_replaced(worker.machine):
            if worker is not None:
                shutil.rmtree(worker.folder, ignore_errors=True)
            self._begin(pod)
        else:
            worker.update(pod)

    def _is_replaced(self, machine: Machine) -> bool:
        """Return whether another machine has a lost one's name: its kubelet starts the pods of that name."""
        return machine.is_gone and machine.name in self.machines

    def _begin(self, pod: dict[str, Any]) -> None:
        machine = self.machines.get(pod["spec"]["nodeName"])
        metadata, status = pod["metadata"], pod.get("status", {})
        if machine is None or machine.is_gone or status.get("phase") in ("Succeeded", "Failed"):
            return
        # There is no process to end, so the kubelet confirms the end at once.
        if "deletionTimestamp" in metadata:  # bound, and deleted before any container started
            self.cluster.attempt(
                lambda: self.cluster.store.delete("pods", metadata["namespace"], metadata["name"], 0)
            )
            return
        worker = PodWorker(self, machine, pod)
        self.workers[metadata["uid"]] = worker
        worker.begin()

    def _shut_down(self, machine: Machine, grace_s: float) -> None:
        for worker in self._on(machine):
            grace = float(worker.pod["spec"].get("terminationGracePeriodSeconds", 30))
            if not worker.is_ending:
                worker.end(min(grace, grace_s), by_shutdown=True)

    def _kill_on(self, machine: Machine) -> None:
        for worker in self._on(machine):
            worker.kill()

    def _kill_all(self) -> None:
        for worker in self.workers.values():
            worker.kill()

    def _on(self, machine: Machine) -> list[PodWorker]:
        return [worker for worker in self.workers.values() if worker.machine is machine]

    def _watch_memory(self) -> None:
        is_needed = False
        for worker in list(self.workers.values()):
            for instance in worker.instances:
                limit = ((instance.container.get("resources") or {}).get("limits") or {}).get("memory")
                if limit is None or instance.running is None:
                    continue
                is_needed = True
                if not instance.pid:
                    continue
                most = int(amount(limit))
                # The stand-in has no cgroup for each container: it measures the processes, and kills them.
                if memory.used(instance.pid, most) > most:
                    instance.ran_out_of_memory = True
                    instance.running.signal(_KILL)
                    text = f"Memory cgroup out of memory: Killed process {instance.pid} ({instance.name})"
                    node = worker.machine.object()
                    self.cluster.event(node, "OOMKilling", text, source="kernel-monitor", warning=True)
        self._is_watching_memory = is_needed
        if is_needed:
            self.loop.after(_MEMORY_LOOK_S, self._watch_memory)


def _waits_for_driver(instance: Instance) -> bool:
    """Return whether a container waits for the file by which the driver reports that it is ready."""
    return any(_DRIVER_READY in word for word in instance.container.get("command") or ())


def _sees_driver(instance: Instance) -> bool:
    """Return whether the driver's file exists where a container looks for it: in the node's own folder."""
    folder = _DRIVER_READY.rpartition("/")[0]
    volumes = instance.worker.pod["spec"].get("volumes") or ()
    paths = {each["name"]: (each.get("hostPath") or {}).get("path") for each in volumes}
    mounts = instance.container.get("volumeMounts") or ()
    is_mounted = any((paths.get(each["name"]), each["mountPath"]) == (folder, folder) for each in mounts)
    return is_mounted and instance.worker.machine.devices.has_driver(RDMA)


def _inventory(instance: Instance) -> str:
    """Return the folder that the driver's container requires and that is not mounted; empty for none."""
    variables = {each["name"]: each.get("value", "") for each in instance.container.get("env") or ()}
    folder = variables.get(_INVENTORY, _INVENTORY_FOLDER)
    mounts = {each["mountPath"] for each in instance.container.get("volumeMounts") or ()}
    return "" if not folder or folder in mounts else folder


def _words(instance: Instance) -> set[str]:
    """Return the words of the node's operating system, with a release such as 24.04 instead of 24.04.3."""
    return {".".join(word.split(".")[:2]) for word in instance.worker.machine.os_image.split()}


class _Plugged:
    """Listens to a known program for its instance, and switches its effects on and off."""

    def __init__(
        self,
        instance: Instance,
        kubelet: Kubelet,
        *,
        program: Program,
        names: Mapping[str, int],
    ) -> None:
        self._instance = instance
        self._kubelet = kubelet
        self._machine = instance.worker.machine
        self._program = program
        self._names = names
        self._uid = str(instance.worker.pod["metadata"]["uid"])

    def started(self, pid: int) -> None:
        """Switch its effects on."""
        self._instance.started(pid)
        if self._program.plugin:
            self._machine.plug_in(self._program, self._names)
        if self._program.driver:
            self._machine.devices.load(self._program.driver)
        if self._program.operator:
            self._kubelet.programs.setdefault(self._program.operator, set()).add(self._uid)

    def refused(self, reason: str, message: str) -> None:
        """Pass on that it was not started."""
        self._instance.refused(reason, message)

    def ended(self, code: int) -> None:
        """Switch its effects off."""
        if self._program.plugin:
            self._machine.plug_out(self._program)
        if self._program.driver:
            self._machine.devices.unload(self._program.driver)
        if self._program.operator:
            self._kubelet.programs[self._program.operator].discard(self._uid)
        self._instance.ended(code)

    def said(self, data: bytes) -> None:
        """Pass on its output."""
        self._instance.said(data)

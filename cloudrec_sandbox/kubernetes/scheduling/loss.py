"""How nodes are lost: with a cloud's notice, silently, or drained; and what happens to their pods.

A cloud's controller removes the Node object of a machine that is gone. Without one, as on bare metal, the
object stays, and the pods of a machine that vanished stay Terminating: no kubelet confirms their end.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.scheduling.scheduler import tolerates
from cloudrec_sandbox.kubernetes.storage.mirror import condition, is_ending, is_over, is_true, with_conditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.kubelet.pods.agent import Kubelet
    from cloudrec_sandbox.kubernetes.scheduling.nodes import Nodes, Pool
    from cloudrec_sandbox.kubernetes.storage.cluster import Cluster, Worker
    from cloudrec_sandbox.kubernetes.storage.mirror import Object

HOWS = ("spot", "vanish", "drain")
NODE_OBJECTS = ("removed", "stays")
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_DRAIN_AGAIN_S = 5.0
_USUAL_TOLERATION_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long losses take, in seconds.

    Attributes:
        grace_s: from a cloud's notice to the end of the machine (GKE: 15), in real seconds, since
            processes end in real time.
        lost_s: from a machine's silence to NotReady.
        removed_s: from NotReady to the removal of the Node object by the cloud's controller.
        gc_s: from that to the removal of its pods.
        replacement_s: from a machine's end to the next machine of its pool.
    """

    grace_s: float = 30.0
    # kube-controller-manager's default node-monitor-grace-period; it was 40 s in older versions.
    lost_s: float = 50.0
    removed_s: float = 60.0
    gc_s: float = 40.0
    replacement_s: float = 90.0

    def changed(self, wish: Mapping[str, float]) -> Timing:
        """Return a copy with some values changed; ValueError for an unknown name."""
        known = {each.name for each in fields(self)}
        if unknown := sorted(set(wish) - known):
            raise ValueError(
                f"node_timing: unknown {', '.join(unknown)}; there are {', '.join(sorted(known))}"
            )
        return Timing(**{**asdict(self), **{name: float(value) for name, value in wish.items()}})


class Losses:
    """Removes nodes."""

    def __init__(self, cluster: Cluster, worker: Worker, nodes: Nodes, kubelet: Kubelet) -> None:
        self._cluster = cluster
        self._worker = worker
        self._nodes = nodes
        self._kubelet = kubelet
        self.timing = Timing()

    def order(self, wish: Mapping[str, Any]) -> None:
        """Carry out {"node": N, "how": "spot"|"vanish"|"drain"}; ValueError for an unknown node or way.

        A machine that vanishes may have "node_object": "stays": its Node object is not removed, and the
        machine is not replaced.
        """
        name, how, fate = wish.get("node"), wish.get("how", "spot"), wish.get("node_object", "removed")
        if how not in HOWS:
            raise ValueError(f"evict: how {how!r} is none of {', '.join(HOWS)}")
        if not isinstance(name, str) or self._nodes.machine(name) is None:
            raise ValueError(
                f"evict: there is no node {name!r}; there are {', '.join(sorted(self._kubelet.machines))}"
            )
        if fate not in NODE_OBJECTS or (fate == "stays" and how != "vanish"):
            raise ValueError(
                f"evict: node_object {fate!r} with how {how!r}; it is one of {', '.join(NODE_OBJECTS)}, and "
                "stays only with vanish"
            )
        if how == "spot":
            self._give_notice(name)
        elif how == "vanish":
            self._vanish(name, stays=fate == "stays")
        else:
            self._cordon(name)
            self._drain(name)

    def _give_notice(self, name: str) -> None:
        """Announce that the cloud takes the machine back: its pods end, then the machine."""
        node, machine = self._node(name), self._nodes.machine(name)
        if node is None or machine is None:
            return
        text = f"Spot instance {name} will be taken back in {self.timing.grace_s:g} s"
        self._cluster.event(
            node, "PreemptionNotice", text, source="cloud-node-manager", host=name, warning=True
        )
        self._cordon(name)
        self._taint(name, SHUTDOWN, "NoSchedule")
        wish = {
            "type": "Ready",
            "status": "False",
            "reason": "KubeletNotReady",
            "message": "node is shutting down",
        }
        self._set_condition("nodes", name, wish)
        words = "Pod was terminated in response to imminent node shutdown."
        for pod in self._cluster.mirror.on_node(name):
            # Pods that end by a shutdown get DisruptionTarget: podFailurePolicy can ignore them.
            if not is_over(pod):
                self._disrupt(pod, "TerminationByKubelet", words)
        self._nodes.begin_end(name)
        self._kubelet.shut_down(machine, self.timing.grace_s)
        self._kubelet.loop.after(self.timing.grace_s, lambda: self._end_machine(name))

    def _end_machine(self, name: str) -> None:
        with self._cluster.store.lock:
            pool = self._nodes.end(name)
            if pool is not None:
                self._replace_later(pool)
                self._remove_object(name)
                self._nodes.again(name)

    def _vanish(self, name: str, *, stays: bool) -> None:
        """Turn the machine off; the cluster notices it by its silence."""
        pool = self._nodes.end(name)
        self._worker.later(self.timing.lost_s, ("lost", name), lambda: self._declare_lost(name, stays=stays))
        if pool is not None and not stays:
            self._replace_later(pool)

    def _declare_lost(self, name: str, *, stays: bool) -> None:
        with self._cluster.store.lock:
            node = self._node(name)
            if node is None:
                return
            now = self._cluster.timestamp()
            unknown = [
                {
                    "type": each["type"],
                    "status": "Unknown",
                    "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.",
                }
                for each in node["status"]["conditions"]
            ]
            self._cluster.patch_status("nodes", node, {"conditions": with_conditions(node, unknown, now)})
            self._record(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
            for effect in ("NoSchedule", "NoExecute"):
                self._taint(name, UNREACHABLE, effect)
            for pod in self._cluster.mirror.on_node(name):
                if not is_over(pod):
                    self._mark_unready(pod)
            if stays:
                self._worker.later(self.timing.gc_s, ("gc", name), lambda: self._collect_terminating(name))
                return
            self._worker.later(self.timing.removed_s, ("removed", name), lambda: self._remove_object(name))

    def _collect_terminating(self, name: str) -> None:
        """Remove the terminating pods of a dead node once it has the taint out-of-service.

        So does pod garbage collection (gc_controller.go: gcTerminating), which looks again and again.
        """
        with self._cluster.store.lock:
            node = self._node(name)
            if node is None or is_true(node, "Ready"):
                return
            if any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints") or ()):
                for pod in self._cluster.mirror.on_node(name):
                    if is_ending(pod):
                        self._remove_pod(pod, "PodGC: node is out of service")
            self._worker.later(self.timing.gc_s, ("gc", name), lambda: self._collect_terminating(name))

    def _remove_pod(self, pod: Object, message: str) -> None:
        if not is_over(pod):
            self._disrupt(pod, "DeletionByPodGC", message, phase="Failed")
        space, own = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._cluster.attempt(self._cluster.store.delete, "pods", space, own, 0)

    def _mark_unready(self, pod: Object) -> None:
        wishes = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
        conditions = with_conditions(pod, wishes, self._cluster.timestamp())
        self._cluster.patch_status("pods", pod, {"conditions": conditions})
        self._cluster.event(pod, "NodeNotReady", "Node is not ready", source="node-controller", warning=True)
        toleration = tolerates(pod, {"key": UNREACHABLE, "effect": "NoExecute"})
        # The default toleration is 300 s (Kubernetes' documentation, taint-and-toleration).
        wait = _USUAL_TOLERATION_S if toleration is None else toleration.get("tolerationSeconds")
        if wait is not None:
            uid = pod["metadata"]["uid"]
            self._worker.later(float(wait), ("taint", uid), lambda: self._evict_by_taint(pod))

    def _evict_by_taint(self, pod: Object) -> None:
        with self._cluster.store.lock:
            current = self._current(pod)
            if current is None or is_ending(current) or is_over(current):
                return
            space, name = current["metadata"]["namespace"], current["metadata"]["name"]
            text = f"Marking for deletion Pod {space}/{name}"
            self._cluster.event(current, "TaintManagerEviction", text, source="taint-eviction-controller")
            self._disrupt(current, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
            self._cluster.attempt(lambda: self._cluster.store.delete("pods", space, name))

    def _remove_object(self, name: str) -> None:
        """Remove the Node object, as the cloud's controller does when the machine is gone."""
        with self._cluster.store.lock:
            node = self._node(name)
            if node is None or self._nodes.machine(name) is not None:
                return
            text = f"Deleting node {name} because it does not exist in the cloud provider"
            self._cluster.event(node, "DeletingNode", text, source="cloud-node-lifecycle-controller")
            self._cluster.attempt(lambda: self._cluster.store.delete("nodes", None, name))

    def note(self, event: str, resource: str, obj: Object) -> None:
        """Collect the pods of a Node object that was deleted, by a cloud, an order or a user.

        Pod garbage collection does so once the node has been missing for 40 s (gc_controller.go: gcOrphaned).
        """
        if event == "DELETED" and resource == "nodes":
            name = obj["metadata"]["name"]
            self._worker.later(self.timing.gc_s, ("gc", name), lambda: self._collect(name))

    def _collect(self, name: str) -> None:
        """Remove the pods of a node that is gone, as pod garbage collection does."""
        with self._cluster.store.lock:
            if self._node(name) is not None:
                return
            for pod in self._cluster.mirror.on_node(name):
                self._remove_pod(pod, "PodGC: node no longer exists")

    def _drain(self, name: str) -> None:
        """Evict the node's pods as budgets allow, and continue until none is left."""
        with self._cluster.store.lock:
            left = [pod for pod in self._cluster.mirror.on_node(name) if _is_drained(pod)]
            for pod in left:
                if not is_ending(pod) and self._may_disrupt(pod):
                    space, own = pod["metadata"]["namespace"], pod["metadata"]["name"]
                    self._disrupt(pod, "EvictionByEvictionAPI", "Eviction API: evicting")
                    self._cluster.attempt(self._cluster.store.delete, "pods", space, own)
            if left and self._nodes.machine(name) is not None:
                self._worker.later(_DRAIN_AGAIN_S, ("drain", name), lambda: self._drain(name))

    def _may_disrupt(self, pod: Object) -> bool:
        own = (pod["metadata"].get("labels") or {}).items()
        for budget in self._cluster.mirror.all("poddisruptionbudgets", pod["metadata"]["namespace"]):
            selector = (budget["spec"].get("selector") or {}).get("matchLabels") or {}
            if not selector.items() <= own or not is_true(pod, "Ready"):
                continue
            left = int(budget.get("status", {}).get("disruptionsAllowed") or 0)
            if left <= 0:
                return False
            self._cluster.patch_status("poddisruptionbudgets", budget, {"disruptionsAllowed": left - 1})
        return True

    def _replace_later(self, pool: Pool) -> None:
        def replace() -> None:
            with self._cluster.store.lock:
                self._nodes.replace(pool)

        self._worker.later(self.timing.replacement_s, ("replace", object()), replace)

    def _cordon(self, name: str) -> None:
        self._cluster.attempt(
            lambda: self._cluster.store.patch("nodes", None, name, {"spec": {"unschedulable": True}})
        )
        self._taint(name, UNSCHEDULABLE, "NoSchedule")

    def _taint(self, name: str, key: str, effect: str) -> None:
        node = self._node(name)
        if node is not None:
            taints = list(node["spec"].get("taints") or ())
            if not any(each["key"] == key and each["effect"] == effect for each in taints):
                taints.append({"key": key, "effect": effect, "timeAdded": self._cluster.timestamp()})
                self._cluster.store.patch("nodes", None, name, {"spec": {"taints": taints}})

    def _set_condition(self, resource: str, name: str, wish: Mapping[str, Any]) -> None:
        obj = self._cluster.mirror.get(resource, "", name)
        if obj is not None:
            conditions = with_conditions(obj, [wish], self._cluster.timestamp())
            self._cluster.patch_status(resource, obj, {"conditions": conditions})

    def _disrupt(self, pod: Object, reason: str, message: str, *, phase: str = "") -> None:
        """Set DisruptionTarget: the pod's end is not its own failure."""
        wish = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
        status: dict[str, Any] = {}
        if condition(pod, "DisruptionTarget") is None:
            status["conditions"] = with_conditions(pod, [wish], self._cluster.timestamp())
        if phase:
            status |= {"phase": phase}
        if status:
            self._cluster.patch_status("pods", pod, status)

    def _node(self, name: str) -> Object | None:
        return self._cluster.mirror.get("nodes", "", name)

    def _current(self, pod: Object) -> Object | None:
        metadata = pod["metadata"]
        found = self._cluster.mirror.get("pods", metadata["namespace"], metadata["name"])
        return found if found is not None and found["metadata"]["uid"] == metadata["uid"] else None

    def _record(self, node: Object, reason: str, message: str) -> None:
        self._cluster.event(node, reason, message, source="node-controller")


def _is_drained(pod: Object) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return not is_over(pod) and all(owner["kind"] != "DaemonSet" for owner in owners)

"""The keys of /_control for controllers and nodes.

nodes        pools: [{"name", "count", "labels", "taints", "capacity", "hardware", "os_image",
             "provider_id", "machine"}]; without a count the name is a node's. It replaces all nodes, or with
             {"pool": P, "nodes": [...]} those whose label cloudrec-sandbox/pool is P. `capacity` is
             allocatable at once; `hardware` {"gpus", "efa", "infiniband", "rdma_driver", "mtu", "memlock"}
             only once a device plugin's pod runs on the node (GKE's nodes: at once). InfiniBand cards without
             "rdma_driver": 1 need a driver's pod too, before the plugin's; "nvme": N and
             "temporary_disk": 1 are the local disks that a privileged pod finds
node_timing  {"grace_s", "lost_s", "removed_s", "gc_s", "replacement_s"}: how long losses take; all but
             grace_s are virtual seconds: during the grace, processes must really end
evict        {"node": N, "how": "spot"|"vanish"|"drain"}: lose a node with a notice, without, or by a drain;
             with "vanish", "node_object": "stays" leaves its Node object, as where no cloud removes it
lost         (read only) the machines of lost nodes with a "machine", which only an order of another machine
             brings back
environment  {"NAME": "VALUE"}: variables that a cloud adds to its pods
images       {"IMAGE": "missing"|"private"|"present"}, by whole reference or repository. Without an entry,
             images are present whose last part begins with "cloudrec", and known programs (device plugins,
             operators)
operators    ["pytorchjob", "trainjob", "jobset", "rayjob"]: whose controllers work without a pod
processes    false: pods that start from now on are only simulated, without processes
bookkeeping  {"run_s", "exit_code", "stop_code", "log", "logs"}: how simulated pods end (without run_s:
             never), their exit code on SIGTERM, and what they print: `log`, or the entry of `logs` with the
             pod's host name
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from cloudrec_sandbox.kubernetes.api.world import book

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec_sandbox.kubernetes.api.world import Cluster
    from cloudrec_sandbox.kubernetes.controllers.plane import Controllers


def _plane(world: Cluster) -> Controllers:
    return cast("Controllers", world.controllers)


def _refuse(_plane: Controllers, _value: object) -> None:
    raise ValueError("lost is read-only: `evict` loses nodes")


def _declare(
    name: str, read: Callable[[Controllers], Any], write: Callable[[Controllers, Any], None]
) -> None:
    def read_of(world: Cluster) -> Any:  # noqa: ANN401 - JSON
        return read(_plane(world))

    def write_to(world: Cluster, value: Any) -> None:  # noqa: ANN401 - JSON
        write(_plane(world), value)

    book.setting(name, read=read_of, write=write_to)


_declare("nodes", lambda plane: plane.nodes.document(), lambda plane, value: plane.nodes.order(value))
_declare(
    "node_timing",
    lambda plane: asdict(plane.losses.timing),
    lambda plane, value: setattr(plane.losses, "timing", plane.losses.timing.changed(value)),
)
_declare("evict", lambda _plane: None, lambda plane, value: plane.losses.order(value))
_declare("lost", lambda plane: plane.nodes.lost, _refuse)
_declare(
    "images",
    lambda plane: plane.kubelet.images.document(),
    lambda plane, value: plane.kubelet.images.order(value),
)
_declare(
    "operators",
    lambda plane: sorted(plane.operators.ordered),
    lambda plane, value: plane.operators.order(value),
)
_declare(
    "processes",
    lambda plane: not plane.kubelet.books_only,
    lambda plane, value: setattr(plane.kubelet, "books_only", not value),
)
_declare(
    "bookkeeping",
    lambda plane: plane.kubelet.bookkeeping,
    lambda plane, value: setattr(plane.kubelet, "bookkeeping", dict(value)),
)
_declare(
    "environment",
    lambda plane: dict(plane.kubelet.given),
    lambda plane, value: setattr(plane.kubelet, "given", dict(value)),
)

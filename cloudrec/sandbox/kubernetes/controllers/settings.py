"""The keys of /_control that are this half's.

nodes        pools: [{"name", "count", "labels", "taints", "capacity", "hardware", "provider_id"}]; without
             a count the name is a node's. It replaces all nodes, or with {"pool": P, "nodes": [...]}
             those whose label cloudrec-sandbox/pool is P. `capacity` is allocatable at once; `hardware`
             {"gpus", "efa", "infiniband", "mtu", "memlock"} only once a device plugin's pod runs on the
             node (GKE's nodes: at once)
node_timing  {"grace_s", "lost_s", "removed_s", "gc_s", "replacement_s"}: how long losses take; all but
             grace_s are virtual seconds, since in those of grace processes must really end
evict        {"node": N, "how": "spot"|"vanish"|"drain"}: lose a node with a notice, without, or by a drain
environment  {"NAME": "VALUE"}: what a cloud gives its pods by itself
images       {"IMAGE": "missing"|"private"|"present"}, by whole reference or repository. Without a word those
             are there whose last part begins with "cloudrec", and known programs (device plugins, operators)
operators    ["pytorchjob", "trainjob", "rayjob"]: whose controllers work though no pod of theirs runs
processes    false: pods started from now on are but kept in the books
bookkeeping  {"run_s", "exit_code", "log", "logs"}: how such pods end (without run_s: never), and what they
             print: `log`, or what `logs` has under the name by which a pod's peers know it
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from cloudrec.sandbox.kubernetes.world import book

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.sandbox.kubernetes.controllers.plane import Controllers
    from cloudrec.sandbox.kubernetes.world import Cluster


def _plane(world: Cluster) -> Controllers:
    return cast("Controllers", world.controllers)


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

"""The time of `up` and `down`, compared with the critical path of their resources.

    python -m benchmarks.makespan [--cloud aws] [--speed 4] [--write]

The cloud is its stand-in: resources take as long to be created and deleted as in the cloud, on a clock that
runs `speed` times faster. The critical path is the longest path through the graph that is applied, with the
stand-in's time for each resource; the serial time is the sum of all. A second `up`, which must change
nothing, is measured in calls and seconds. cloudrec's computation takes real time, so it counts `speed` times
as much as with a real cloud, where the ratio would be better.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import describe_machine, today
from cloudrec.engine.graph import Graph
from tests.conformance.support_clouds import Cloud, Site, stand_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LIMIT = 1.01
SPEED = 4.0
RESULTS = Path(__file__).parent / "results"
# The stand-in's durations that a resource waits for when it is created and when it is deleted, by the first
# pattern that matches the beginning of its key.
MADE: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "aws": {
        "role": ("iam-role",),
        "nat-gateway": ("nat-create",),
        "endpoint": ("endpoint-create",),
        "placement-group": ("placement-group",),
        "cluster": ("eks-cluster-create",),
        "addon": ("eks-addon-create",),
        "cpu-nodes": ("eks-nodegroup-create",),
        "gpu-nodes": ("eks-gpu-nodegroup-create",),
        "lustre": ("fsx-create",),
        "data-link": ("dra-create",),
    },
    "azure": {
        "registration/.*-aks-infiniband": ("feature-registration",),
        "registration": ("provider-registration",),
        "identity": ("principal-replication",),  # until a role can be assigned to it
        "role-assignment/.*-cluster-.*": ("role-assignment-effect",),
        "virtual-network|network-security-group|public-ip|subnet": ("network-create",),
        "nat-gateway": ("nat-create",),
        "registry": ("registry-create",),
        "storage-account": ("storage-create",),
        "cluster": ("aks-create",),
        "gpu-nodes": ("aks-pool-gpu-create",),
        "lustre": ("lustre-create",),
    },
    "gcp": {
        "network": ("compute-network",),
        "subnetwork": ("compute-subnetwork",),
        "router": ("compute-router", "compute-nat"),
        "firewall": ("compute-firewall",),
        "service-account": ("iam-visibility",),
        "repository": ("artifactregistry-create",),
        "cluster": ("gke-cluster",),
        # Google works at a new cluster by itself before it takes another order; a pool is made, then grown.
        "gpu-nodes": ("gke-cluster-settling", "gke-pool", "gke-pool-resize"),
        "lustre": ("lustre-instance",),
    },
}
GOES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "aws": {
        "nat-gateway": ("nat-delete",),
        "elastic-ip": ("eip-release",),
        "endpoint": ("endpoint-delete",),
        "cluster": ("eks-cluster-delete",),
        "addon": ("eks-addon-delete",),
        "cpu-nodes": ("eks-nodegroup-delete",),
        "gpu-nodes": ("eks-nodegroup-delete",),
        "leftovers": ("eks-node-interfaces",),
        "lustre": ("fsx-delete",),
        "data-link": ("dra-delete",),
    },
    "azure": {
        "resource-group": ("resource-group",),
        "virtual-network|network-security-group|public-ip|subnet": ("network-delete",),
        "nat-gateway": ("nat-delete",),
        "registry": ("registry-delete",),
        "cluster": ("aks-delete",),
        "gpu-nodes": ("aks-pool-delete",),
        "leftovers": ("subnet-linger",),
        "lustre": ("lustre-delete",),
    },
    "gcp": {
        "network|subnetwork|router|firewall": ("compute-delete",),
        "repository": ("artifactregistry-delete",),
        "cluster": ("gke-cluster-deletion",),
        "cpu-nodes|gpu-nodes": ("gke-pool-deletion",),
        "lustre": ("lustre-deletion",),
    },
}


def longest(graph: Graph, seconds: Callable[[str], float], *, backwards: bool) -> tuple[float, list[str]]:
    """The critical path: its seconds and the keys along it."""
    order = graph.order()
    needs: dict[str, set[str]] = graph.needs()
    if backwards:
        order = tuple(reversed(order))
        needs = {key: {other for other, below in needs.items() if key in below} for key in needs}
    ends: dict[str, tuple[float, list[str]]] = {}
    for key in order:
        before, path = max((ends[need] for need in needs[key]), default=(0.0, []), key=lambda end: end[0])
        own = seconds(key)
        ends[key] = (before + own, [*path, *([key] if own else [])])
    return max(ends.values(), key=lambda end: end[0])


def measure(cloud: Cloud, speed: float, folder: Path) -> tuple[list[str], bool]:
    """The report's lines, and whether both limits hold."""
    cloud.reset()
    cloud.control(speed=speed)
    cloud.env["CLOUDREC_SANDBOX_SPEED"] = str(speed)
    site = Site(cloud, folder)
    provider = site.application.provider(cloud.name)
    graph = Graph.of(provider.resources(site.cluster))
    durations = cloud.settings()["durations"]

    def took(names: Mapping[str, tuple[str, ...]]) -> Callable[[str], float]:
        def seconds(key: str) -> float:
            found = (names[pattern] for pattern in names if re.match(rf"(?:{pattern})(?:/|$)", key))
            return sum(durations[name] for name in next(found, ()))

        return seconds

    lines = [
        "| | critical path s | took s | ratio | one after the other s | the path |",
        "|---|---|---|---|---|---|",
    ]
    ok = True
    for name, act, seconds, backwards in (
        ("up", site.up, took(MADE[cloud.name]), False),
        ("down", site.down, took(GOES[cloud.name]), True),
    ):
        path_s, path = longest(graph, seconds, backwards=backwards)
        if backwards:
            path_s, path = path_s + provider.settle_s, [*path, "the second look"]
        serial = sum(seconds(key) for key in graph.resources)
        spent = clocked(act) * speed
        ok &= spent <= LIMIT * path_s
        figures = (f"{path_s:.0f}", f"{spent:.0f}", f"{spent / path_s:.3f}", f"{serial:.0f}")
        lines.append(f"| {name} | {' | '.join(figures)} | {', '.join(path)} |")
        if name == "up":
            calls = len(cloud.calls())
            again = clocked(site.up)
            made = cloud.calls(calls)
            nothing = f"{len(made)} calls, {len(cloud.changing(made))} changing, {again:.2f} s of real time"
    return [*lines, "", f"`up` again, with nothing to change: {nothing}."], ok


def clocked(act: Callable[[], Any]) -> float:
    """Return the seconds that an action takes, in real time."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def main() -> int:
    """Print the table; return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cloud", default="aws", choices=sorted(MADE))
    parser.add_argument("--speed", type=float, default=SPEED, help="of the stand-in's clock")
    parser.add_argument("--write", action="store_true", help="keep the report under benchmarks/results")
    asked = parser.parse_args()
    with stand_in(asked.cloud) as cloud, tempfile.TemporaryDirectory() as folder:
        lines, ok = measure(cloud, asked.speed, Path(folder))
    title = f"# How long `cloudrec up {asked.cloud}` and `down` take, {today()}"
    note = f"{describe_machine()} The stand-in's clock ran {asked.speed:g} times faster. Limit: {LIMIT}."
    report = "\n".join([title, "", note, "", *lines, ""])
    print(report)
    if asked.write:
        (RESULTS / f"makespan-{asked.cloud}-{today()}.md").write_text(report, encoding="utf-8")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())

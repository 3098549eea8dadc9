"""The machine families of every provider, each with its cluster, and every launcher."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from cloudrec.kubernetes.client.target import CardNetwork, ClusterTarget, PodSetup
from cloudrec.kubernetes.manifests import (
    Guarding,
    Workload,
    guard_objects,
    namespace_objects,
    probe_objects,
    run_objects,
)
from cloudrec.kubernetes.manifests.names import ENGINES
from cloudrec.providers.aws.facts import FACTS as AWS
from cloudrec.providers.gcp.facts import FACTS as GCP
from cloudrec.transport import Profile, profile_of

IMAGE = "registry.example/cloudrec/trainer@sha256:" + "5c" * 32
_GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}
_SPOT = "kubernetes.azure.com/scalesetpriority"
_SPOT_TAINT = {"key": _SPOT, "operator": "Equal", "value": "spot", "effect": "NoSchedule"}
_EFA = {"hugepages-2Mi": "5120Mi"}


def _aws(machine: str, gpus: int, efa: int = 0) -> ClusterTarget:
    cards = {"vpc.amazonaws.com/efa": str(efa), **_EFA} if efa else {}
    return _target(
        context="cloudrec-aws",
        fabric="efa" if efa else "tcp",
        instance_type=machine,
        resources={"nvidia.com/gpu": str(gpus), **cards},
        node_selector={"eks.amazonaws.com/nodegroup": "cloudrec-aws-gpu"},
        tolerations=[_GPU_TAINT],
        disk_gb=7198,
        notice_s=120,
        notices="aws",
        topology=list(AWS.topology),
    )


def _azure(machine: str, gpus: int, infiniband: int = 0) -> ClusterTarget:
    cards = {"rdma/ib": str(infiniband)} if infiniband else {}
    return _target(
        context="cloudrec-azure",
        fabric="infiniband" if infiniband else "tcp",
        instance_type=machine,
        resources={"nvidia.com/gpu": str(gpus), **cards},
        node_selector={"kubernetes.azure.com/agentpool": "gpuspot"},
        tolerations=[_GPU_TAINT, _SPOT_TAINT],
        capabilities=["IPC_LOCK"] if infiniband else [],
        disk_gb=247,
        local_path="/mnt/cloudrec/data" if infiniband else "",
        service_account_annotations={
            "azure.workload.identity/client-id": "0" * 8 + "-aaaa-bbbb-cccc-" + "0" * 12
        },
        pod_labels={"azure.workload.identity/use": "true"},
        notices="azure",
    )


def _gcp(machine: str, gpus: int, fabric: str = "tcp", cards: int = 0) -> ClusterTarget:
    rdma = cards if fabric == "rdma" else 0
    networks = [
        CardNetwork(
            interface=f"eth{number}",
            network=f"projects/p/global/networks/cloudrec-gcp-gpu{number}",
            subnetwork=f"projects/p/regions/us-central1/subnetworks/cloudrec-gcp-gpu{number}",
        )
        for number in range(1, (1 if rdma else cards) + 1)
    ]
    networks += [
        CardNetwork(
            interface=f"eth{number + 2}",
            network="cloudrec-gcp-rdma-b",
            subnetwork=f"cloudrec-gcp-rdma-b-{number}",
            name=f"cloudrec-gcp-rdma-b-{number}",
            mode="RDMA",
        )
        for number in range(rdma)
    ]
    return _target(
        context="cloudrec-gcp",
        fabric=fabric,
        instance_type=machine,
        resources={"nvidia.com/gpu": str(gpus)},
        node_selector={"cloud.google.com/gke-nodepool": "gpu-spot"},
        tolerations=[_GPU_TAINT],
        networks=networks,
        capabilities=["IPC_LOCK"] if fabric in {"rdma", "tcpx"} else [],
        disk_gb=2791,
        notice_s=15,
        notices="gcp",
        topology=list(GCP.topology),
    )


def _target(**values: Any) -> ClusterTarget:
    known: dict[str, Any] = {
        "kubeconfig": "kubeconfig",
        "namespace": "training",
        "service_account": "trainer",
    }
    return ClusterTarget(**known, **values)


FAMILIES: Mapping[str, ClusterTarget] = {
    "aws-p4d": _aws("p4d.24xlarge", 8, 4),
    "aws-p5": _aws("p5.48xlarge", 8, 32),
    "aws-p5en": _aws("p5en.48xlarge", 8, 16),
    "aws-g5": _aws("g5.xlarge", 1),
    "azure-nd-a100-v4": _azure("Standard_ND96asr_v4", 8, 8),
    "azure-nd-h100-v5": _azure("Standard_ND96isr_H100_v5", 8, 8),
    "azure-nc-t4-v3": _azure("Standard_NC4as_T4_v3", 1),
    "gcp-a3-high": _gcp("a3-highgpu-8g", 8, "tcpx", 4),
    "gcp-a3-mega": _gcp("a3-megagpu-8g", 8, "tcpxo", 8),
    "gcp-a3-ultra": _gcp("a3-ultragpu-8g", 8, "rdma", 8),
    "gcp-a2": _gcp("a2-highgpu-8g", 8),
    "gcp-g2": _gcp("g2-standard-4", 1),
    "kubernetes-gpu": _target(context="theirs", fabric="tcp", resources={"nvidia.com/gpu": "4"}),
    "kubernetes-cpu": _target(context="theirs"),
}
_OTHERS, _BARE = "probe-and-guard", "runs-and-guard-without-image"
SETUP = PodSetup(
    digest="0123456789abcdef" * 4, extras=("base", "kubernetes", "trainer", "parquet", "ray", "aws")
)
SETS: Mapping[str, tuple[str, str]] = {  # a golden file's name: its family and the rendered set
    **{f"{family}-{what}": (family, what) for family in FAMILIES for what in (*ENGINES, _OTHERS)},
    f"aws-p5-{_BARE}": ("aws-p5", _BARE),
    f"gcp-a3-mega-{_BARE}": ("gcp-a3-mega", _BARE),
}
_SCHEMES = {"aws": "s3://bucket", "azure": "abfs://data@account.dfs.core.windows.net", "gcp": "gs://bucket"}


def profile(target: ClusterTarget) -> Profile:
    """Return the transport of a family."""
    return profile_of(target.fabric, target.instance_type)


def workload(family: str = "aws-p5", **changes: Any) -> Workload:
    """Return an elastic run of two to four nodes."""
    provider = family.partition("-")[0]
    gpus = int(FAMILIES[family].resources.get("nvidia.com/gpu", "0"))
    values: dict[str, Any] = {
        "run": "dlrm",
        "cluster": provider,
        "owner": "ann",
        "launch": 1,
        "image": IMAGE,
        "nodes": 4,
        "min_nodes": 2,
        "processes": max(1, gpus),
        "command": ("python", "-P", "-m", "trainer"),
        "flags": ("--batch_size", "65536"),
        "config": f"dataset_path: {_SCHEMES.get(provider, '/srv')}/data/criteo\nembedding_dim: 128\n",
        "environment": {"NCCL_TIMEOUT_NOTE": "from the user"},
        "results": f"{_SCHEMES.get(provider, 'file:///srv/cloudrec')}/runs/dlrm",
        "checkpoints": f"{_SCHEMES.get(provider, 'file:///srv/cloudrec')}/runs/dlrm/checkpoints",
        "dataset": f"{_SCHEMES.get(provider, '/srv')}/data/criteo",
        "grace_s": FAMILIES[family].notice_s,
        "cpus": 4,
        "memory_gib": 256,
        "in_place": True,
        "disk_gib": 16 if FAMILIES[family].local_path else 662 if FAMILIES[family].disk_gb else 0,
    }
    return Workload(**{**values, **changes})


@cache
def objects(family: str, launcher: str) -> tuple[dict[str, Any], ...]:
    """Return all objects of one run, rendered once."""
    target = FAMILIES[family]
    return run_objects(launcher, workload(family), target, profile(target))


@cache
def others(family: str) -> tuple[dict[str, Any], ...]:
    """Return the objects that prepare a cluster, those of the probe and those of the guard."""
    target = FAMILIES[family]
    guarding = Guarding(
        cluster="aws",
        owner="ann",
        image=IMAGE,
        note='{"cluster": {"expires": "2026-11-21T08:00:00Z"}}',
        environment={"AWS_REGION": "us-east-1"},
        meters=not family.startswith("kubernetes"),
    )
    return (
        *namespace_objects(target, workload(family).cluster, workload(family).owner),
        *probe_objects(workload(family), target, profile(target)),
        *guard_objects(target, guarding),
    )


@cache
def without_image(family: str) -> tuple[dict[str, Any], ...]:
    """Return the objects of runs, a probe and a guard whose pods install what their image lacks."""
    target, run = FAMILIES[family], workload(family, setup=SETUP)
    index = replace(SETUP, extras=("base", "kubernetes", "aws"), index="https://index.example:8443/simple")
    guarding = Guarding(cluster="aws", owner="ann", image=IMAGE, setup=index)
    return (
        *run_objects("torchrun", run, target, profile(target)),
        *run_objects("rayjob", run, target, profile(target)),
        *probe_objects(run, target, profile(target)),
        *guard_objects(target, guarding),
    )


def rendered(name: str) -> tuple[dict[str, Any], ...]:
    """Return the set of objects of a golden file."""
    family, what = SETS[name]
    if what == _BARE:
        return without_image(family)
    return others(family) if what == _OTHERS else objects(family, what)


def matrix() -> Iterator[tuple[str, tuple[dict[str, Any], ...]]]:
    """Yield every set of objects with the name of its golden file; call it in a test, as it is slow."""
    for name in SETS:
        yield name, rendered(name)


def pod_templates(thing: Any) -> Iterator[dict[str, Any]]:
    """Yield every pod template of an object of any kind."""
    if isinstance(thing, dict):
        if isinstance(thing.get("spec"), dict) and "containers" in thing["spec"]:
            yield thing
        for each in thing.values():
            yield from pod_templates(each)
    elif isinstance(thing, list):
        for each in thing:
            yield from pod_templates(each)

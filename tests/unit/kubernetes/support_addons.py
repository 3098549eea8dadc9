"""One target per machine family, as its provider describes it, and the add-ons that it needs."""

from __future__ import annotations

from typing import Any

from cloudrec.kubernetes.addons import bundled
from cloudrec.kubernetes.addons.inventory import labels_of
from cloudrec.kubernetes.addons.manage import needed
from cloudrec.kubernetes.addons.table import addon_of
from cloudrec.kubernetes.client.target import CardNetwork, ClusterTarget
from cloudrec.transport import profile_of

_S3 = {
    "name": "bucket",
    "driver": "s3.csi.aws.com",
    "handle": "a-bucket",
    "capacity": "1Pi",
    "attributes": {"bucketName": "a-bucket", "authenticationSource": "pod"},
    "mount_options": ["allow-delete", "region us-east-1"],
}
_FSX = {
    "name": "lustre",
    "driver": "fsx.csi.aws.com",
    "handle": "fs-1",
    "capacity": "1200Gi",
    "attributes": {"dnsname": "fs-1.fsx.us-east-1.amazonaws.com", "mountname": "abcdef01"},
    "mount_options": ["flock"],
}
_NETWORKS = [
    CardNetwork(interface=f"eth{number}", network=f"net-gpu{number}", subnetwork=f"sub-gpu{number}")
    for number in range(1, 9)
]
_RDMA = [
    CardNetwork(
        interface=f"eth{number + 2}",
        network="net-rdma-b",
        subnetwork=f"sub-rdma-b-{number}",
        name=f"sub-rdma-b-{number}",
        mode="RDMA",
    )
    for number in range(8)
]
_GKE = {"built_in": ["nvidia-device-plugin"], "node_selector": {"cloud.google.com/gke-nodepool": "gpu"}}
_AKS = {"node_selector": {"kubernetes.azure.com/agentpool": "gpu"}}
_EKS = {"node_selector": {"eks.amazonaws.com/nodegroup": "gpu"}}

_FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "aws-p5": ("efa", "p5.48xlarge", {**_EKS, "volumes": [_S3, _FSX]}),
    "aws-g5": ("tcp", "g5.xlarge", _EKS),
    "azure-nd-h100-v5": (
        "infiniband",
        "Standard_ND96isr_H100_v5",
        {**_AKS, "local_path": "/mnt/cloudrec/data"},
    ),
    "azure-nc-t4-v3": ("tcp", "Standard_NC4as_T4_v3", _AKS),
    "gcp-a3-high": ("tcpx", "a3-highgpu-8g", {**_GKE, "networks": _NETWORKS[:4]}),
    "gcp-a3-mega": ("tcpxo", "a3-megagpu-8g", {**_GKE, "networks": _NETWORKS}),
    "gcp-a3-ultra": ("rdma", "a3-ultragpu-8g", {**_GKE, "networks": [*_NETWORKS[:1], *_RDMA]}),
    "gcp-a2": ("tcp", "a2-highgpu-8g", _GKE),
    "kubernetes-gpu": ("tcp", "", {}),
    "kubernetes-cpu": ("none", "", {}),
}
FAMILIES = tuple(_FAMILIES)
METRICS = ("gpu-metrics", "fabric-metrics")  # cloudrec's own add-ons that are installed on request


def target_of(family: str) -> ClusterTarget:
    fabric, machine, more = _FAMILIES[family]
    resources = profile_of(fabric, machine).pod_resources(8)
    return ClusterTarget(
        kubeconfig="/a/kubeconfig",
        context="a-context",
        namespace="training",
        service_account="trainer",
        fabric=fabric,
        instance_type=machine,
        resources=resources,
        **more,
    )


def objects_of(family: str) -> list[dict[str, Any]]:
    """All objects of the add-ons of a cluster of that family, without upstream releases."""
    target = target_of(family)
    return [
        each
        for addon in (*needed(target), *map(addon_of, METRICS))
        for each in bundled.objects_of(
            addon, target, cluster="demo", labels=labels_of(addon.name, "demo", "ann")
        )
    ]

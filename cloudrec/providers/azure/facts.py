"""Facts about Azure that code for all clouds needs: its fabrics and its preemption notice."""

from __future__ import annotations

from cloudrec.providers.base.facts import CloudFacts, Fabric, PreemptionNotice

# Azure promises at least 30 s between the event and the eviction, but does not guarantee the event.
NOTICE = PreemptionNotice(service="azure", seconds=30, machine_ids="azure")

FACTS = CloudFacts(
    name="azure",
    control_plane="aks-standard",
    bucket="adls-hot-lrs-gib",
    egress="internet-egress-gb",
    fabrics=(
        Fabric(
            name="infiniband",
            machines="Azure ND",
            image="ib",
            card_resource="rdma/",
            # Without it a pod may pin 64 KiB of memory, and InfiniBand pins gigabytes.
            capabilities=("IPC_LOCK",),
        ),
    ),
    notice=NOTICE,
    metrics_agent="Azure Monitor managed service for Prometheus",
    metrics_addons=("gpu-metrics", "azure-pod-monitors"),
    pool_label="kubernetes.azure.com/agentpool",
    # "Node Problem Detector (NPD) in AKS nodes", AKS's documentation; those from GPUMissing on are of GPUs.
    unhealthy=dict.fromkeys(
        (
            "FilesystemCorruptionProblem",
            "KubeletProblem",
            "ContainerRuntimeProblem",
            "KernelDeadlock",
            "ReadonlyFilesystem",
            "GPUMissing",
            "NVLinkStatusInactive",
            "XIDErrors",
            "IBLinkFlapping",
            "UnhealthyNvidiaDevicePlugin",
        ),
        "True",
    ),
)

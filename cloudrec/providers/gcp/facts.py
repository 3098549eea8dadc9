"""The facts about Google Cloud that code shared by all clouds needs."""

from __future__ import annotations

from cloudrec.providers.base.facts import PLAIN_IMAGE, CloudFacts, Fabric, PreemptionNotice

# A spot machine has 30 s from the notice; GKE reserves the last 15 s for system pods.
NOTICE = PreemptionNotice(service="gcp", seconds=15, machine_ids="gce")

FACTS = CloudFacts(
    name="gcp",
    control_plane="gke-cluster",
    bucket="gcs-standard-gib",
    egress="internet-egress-gb",
    fabrics=(
        Fabric(name="tcpx", machines="GKE A3", image="gcp", base_image=PLAIN_IMAGE),
        Fabric(name="tcpxo", machines="GKE A3", image="gcp", base_image=PLAIN_IMAGE),
        # The plug-in comes from the node, but not the verbs' libraries that it loads.
        Fabric(name="rdma", machines="GKE A3 Ultra and A4", image="ib", capabilities=("IPC_LOCK",)),
    ),
    notice=NOTICE,
    metrics_agent="Google Cloud Managed Service for Prometheus",
    metrics_addons=("gke-pod-monitorings",),
    pool_label="cloud.google.com/gke-nodepool",
    # kubernetes/node-problem-detector, config/: the conditions of its monitors, which GKE's nodes run.
    unhealthy=dict.fromkeys(("KernelDeadlock", "ReadonlyFilesystem", "CorruptDockerOverlay2"), "True"),
    # "Schedule GKE workloads with Topology Aware Scheduling", Google's AI Hypercomputer documentation. GKE
    # sets them on nodes whose placement it knows, such as those of a dense reservation.
    topology=tuple(f"cloud.google.com/gce-topology-{part}" for part in ("block", "subblock", "host")),
)

"""Facts about Amazon Web Services for the code that is shared by all clouds."""

from __future__ import annotations

from cloudrec.providers.base.facts import CloudFacts, Fabric, PreemptionNotice

NOTICE = PreemptionNotice(service="aws", seconds=120, machine_ids="aws")

FACTS = CloudFacts(
    name="aws",
    control_plane="eks-cluster",
    bucket="s3-standard-gib",
    egress="internet-egress-gb",
    fabrics=(
        Fabric(
            name="efa",
            machines="AWS",
            image="efa",
            # AWS's Deep Learning Container: the EFA installer's libfabric and NCCL plug-in, Python 3.12. Its
            # digest is not known, so the tag is given (aws.github.io/deep-learning-containers, "PyTorch").
            base_image="public.ecr.aws/deep-learning-containers/pytorch:2.13-cu133-amzn2023",
            card_resource="vpc.amazonaws.com/efa",
            # AWS's chart aws-dranet ("Manage EFA devices on Amazon EKS", EKS's user guide).
            device_class="efa.networking.k8s.aws",
            device_driver="dra.net",
            # EFA needs huge pages: EKS's image reserves 5128 pages of 2 MiB on a node with EFA.
            resources={"hugepages-2Mi": "5120Mi"},
        ),
    ),
    notice=NOTICE,
    metrics_agent="CloudWatch Container Insights",
    pool_label="eks.amazonaws.com/nodegroup",
    # "Detect node health issues with the EKS node monitoring agent", EKS's user guide. The first is that of
    # GPUs: XID, NVLink and ECC errors, and DCGM's findings.
    unhealthy=dict.fromkeys(
        (
            "AcceleratedHardwareReady",
            "ContainerRuntimeReady",
            "KernelReady",
            "NetworkingReady",
            "StorageReady",
        ),
        "False",
    ),
    # "Place distributed AI/ML workloads with network topology labels", EKS's user guide: layer 1 is the top,
    # and only types whose topology has four layers, such as P6, have the fourth.
    topology=tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in range(1, 5)),
)

"""Facts about Amazon Web Services for the code that is shared by all clouds."""

from __future__ import annotations

from cloudrec.providers.base.facts import CloudFacts, Fabric, PreemptionNotice

NOTICE = PreemptionNotice(service="aws", seconds=120, machine_ids="aws")

FACTS = CloudFacts(
    name="aws",
    fabrics=(
        Fabric(
            name="efa",
            machines="AWS",
            image="efa",
            # AWS's Deep Learning Container: the EFA installer's libfabric and NCCL plug-in, Python 3.12. Its
            # digest is not known, so the tag is given (aws.github.io/deep-learning-containers, "PyTorch").
            base_image="public.ecr.aws/deep-learning-containers/pytorch:2.13-cu133-amzn2023",
            card_resource="vpc.amazonaws.com/efa",
            # EFA needs huge pages: EKS's image reserves 5128 pages of 2 MiB on a node with EFA.
            resources={"hugepages-2Mi": "5120Mi"},
        ),
    ),
    notice=NOTICE,
    pool_label="eks.amazonaws.com/nodegroup",
)

"""The facts about Google Cloud that code shared by all clouds needs."""

from __future__ import annotations

from cloudrec.providers.base.facts import PLAIN_IMAGE, CloudFacts, Fabric, PreemptionNotice

# A spot machine has 30 s from the notice; GKE reserves the last 15 s for system pods.
NOTICE = PreemptionNotice(service="gcp", seconds=15, machine_ids="gce")

FACTS = CloudFacts(
    name="gcp",
    fabrics=(
        Fabric(name="tcpx", machines="GKE A3", image="gcp", base_image=PLAIN_IMAGE),
        Fabric(name="tcpxo", machines="GKE A3", image="gcp", base_image=PLAIN_IMAGE),
    ),
    notice=NOTICE,
    pool_label="cloud.google.com/gke-nodepool",
)

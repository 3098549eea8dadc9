"""The ways into a private network on Google Cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.kubernetes.client.credentials import TUNNEL

if TYPE_CHECKING:
    from cloudrec.spec.models import ClusterSpec


def ways_in(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the DNS endpoint, which needs no address, and a tunnel of Identity-Aware Proxy."""
    location = f" --location {cluster.region}" if cluster.region else ""
    describe = (
        f"gcloud container clusters describe cloudrec-{cluster.title}{location} "
        "--format 'value(privateClusterConfig.privateEndpoint)'"
    )
    forward = f"gcloud compute ssh VM --tunnel-through-iap -- -N -L 8443:$({describe}):443"
    return (
        "the cluster's DNS endpoint, which admits callers by IAM and not by address: --access auto",
        f"a tunnel (VM is in the network): {forward}; then {TUNNEL}=127.0.0.1:8443 cloudrec ...",
    )

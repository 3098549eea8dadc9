"""The ways into a private network on AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.kubernetes.client.credentials import TUNNEL

if TYPE_CHECKING:
    from cloudrec.spec.models import ClusterSpec


def ways_in(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return a port forward of Systems Manager (its user guide, "Starting a session": to a remote host)."""
    region = (
        f" --region {cluster.region}" if cluster.region else ""
    )  # else the CLI's own, which is cloudrec's
    name = f"cloudrec-{cluster.title}"
    endpoint = f"aws eks describe-cluster{region} --name {name} --query cluster.endpoint --output text"
    forward = (
        f"aws ssm start-session{region} --target INSTANCE --document-name "
        f"AWS-StartPortForwardingSessionToRemoteHost --parameters "
        f'"host=$({endpoint} | cut -c9-),portNumber=443,localPortNumber=8443"'
    )
    needs = (
        "INSTANCE is in the VPC and managed by Systems Manager, and the cluster's security group admits it"
    )
    return (f"a port forward ({needs}): {forward}; then {TUNNEL}=127.0.0.1:8443 cloudrec ...",)

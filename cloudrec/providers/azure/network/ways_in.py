"""The ways into a private network on Azure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.azure.api.rows import group_name

if TYPE_CHECKING:
    from cloudrec.spec.models import ClusterSpec


def ways_in(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the cloud's own run command (AKS' documentation, "command invoke")."""
    invoke = (
        f"az aks command invoke --resource-group {group_name(cluster.title)} --name cloudrec-{cluster.title} "
        '--command "kubectl get nodes"'
    )
    needs = "managedClusters/runcommand/action and managedClusters/commandResults/read"
    return (f"kubectl and helm alone, in a pod that AKS starts (it needs the actions {needs}): {invoke}",)

"""Whether a cluster takes a run, and with which image. No client is loaded: local runs need none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.app.money.lifetime import is_over, kept_end
from cloudrec.errors import PreflightError
from cloudrec.image.records import newest
from cloudrec.keeper.ends import is_movable
from cloudrec.providers.base.access import KubernetesAccess

if TYPE_CHECKING:
    from cloudrec.app.context import AppContext
    from cloudrec.providers.base.access import Access
    from cloudrec.spec.models import ClusterSpec


def refuse_ended(app: AppContext, cluster: ClusterSpec, access: Access) -> None:
    """Refuse a run on a cluster whose expiry has passed: the guard would suspend the run immediately.

    Args:
        app: the context of the use case; its clock decides.
        cluster: the journal's specification.
        access: the access to the cluster; an expiry in the cluster's tags replaces the journal's.

    Raises:
        PreflightError: the expiry has passed.
    """
    end = access.expires or cluster.expires
    if not isinstance(access, KubernetesAccess):
        return
    if is_over(end, app.now()) and is_movable(cluster):  # the tag has the end that `up` computed
        provider = app.provider(cluster.provider)
        end = kept_end(provider.search(cluster.title, locations=provider.locations(cluster))) or end
    if is_over(end, app.now()):
        raise PreflightError(
            f"cluster {cluster.title!r} ended at {end}, and its guard suspends all runs",
            remedy=f"give it a new expiry: cloudrec up {cluster.provider} --cluster {cluster.title} --ttl 8h",
        )


def refuse_without_nodes(cluster: ClusterSpec, access: Access) -> None:
    """Refuse a run on a cluster whose GPU nodes were scaled to zero: its pods would wait without end.

    Raises:
        PreflightError: there are no GPU nodes.
    """
    if not isinstance(access, KubernetesAccess) or access.is_adopted or access.nodes:
        return
    why = ""
    if cluster.autostop is not None:
        why = f": they are scaled to zero when no run was active for {cluster.autostop} (autostop)"
    raise PreflightError(
        f"cluster {cluster.title!r} has no GPU nodes{why}",
        remedy=f"`cloudrec up {cluster.provider} --cluster {cluster.title}` brings them back",
    )


def image_for(app: AppContext, access: Access) -> str:
    """Return the last image that this machine pushed for a cluster, by digest; empty if there is none."""
    repository = access.target.image_repository if isinstance(access, KubernetesAccess) else ""
    found = newest(app.home, repository) if repository else None
    return f"{found.repository}@{found.digest}" if found else ""

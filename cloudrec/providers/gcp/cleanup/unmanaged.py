"""The audit of a project: resources with cloudrec's labels or names, or in its networks, without a driver.

A collection that cannot be listed is reported as not searched. If its API is not enabled there can be no such
resource, so nothing is reported. The search of Cloud Asset Inventory is different: without its API, labelled
resources of other types may exist. `leaks` says that each time; `down` does not, since a note that every
project gives after every removal is not read any more.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.providers.base.audit import Audit, unmanaged
from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.gcp.api import gke, ids, labels, sdk
from cloudrec.providers.gcp.cleanup import belonging, inventory
from cloudrec.providers.gcp.cleanup.belonging import Belonging, Scope
from cloudrec.providers.gcp.layout import TAG_REGION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Observed
    from cloudrec.providers.gcp.api.client import Gcp

_AT_ONCE = 8  # lists; the session has connections for ten


def audit(account: Gcp, cluster: str | None, managed: Sequence[Observed]) -> Audit:
    """Return the resources that no driver manages in one region, and the global ones."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="audit") as pool:
        lists = list(pool.map(partial(inventory.read, account), inventory.COLLECTIONS))
    unread = frozenset(
        each.noun for each, listed in zip(inventory.COLLECTIONS, lists, strict=True) if listed.unsearched
    )
    searched = inventory.search(account, unread)
    lists.append(searched)
    rows = [row for listed in lists for row in listed.rows]
    clusters = _clusters(account)
    scope = Scope(
        cluster=cluster,
        region=account.region,
        networks=_networks(account, cluster),
        clusters=clusters,
    )
    known = {seen.identity for seen in managed}
    belongs = Belonging(scope, rows)
    found = [
        _observed(row, of)
        for row in rows
        if row.path not in known
        and (of := belongs.cluster_of(row)) is not None
        and not (row.has_driver and is_ours(row.tags, None))
        and not belongs.is_used(row)
    ]
    unsearched = [listed.unsearched for listed in lists if listed.unsearched]
    if searched.absent and cluster is None:
        unsearched.append(inventory.not_enabled())
    return Audit(found=(*found, *_without_labels(account, scope)), unsearched=tuple(unsearched))


def regions(account: Gcp) -> Sequence[str]:
    """Return the regions of the project whose status is UP."""
    listing = account.rest(sdk.compute.RegionsClient).list
    rows = account.rows(listing, sdk.compute.ListRegionsRequest(project=account.project))
    return sorted(row.name for row in rows if row.status == "UP")


def _observed(row: inventory.Row, cluster: str) -> Observed:
    return unmanaged(
        f"{row.noun} {row.name}",
        row.path,
        cluster=cluster,
        location=row.region,
        hourly_usd=row.hourly_usd,
        tags=row.tags,
        created=row.created,
    )


def _clusters(gcp: Gcp) -> Sequence[sdk.container.Cluster]:
    """List the clusters of the project in every location."""
    request = sdk.container.ListClustersRequest(parent=f"projects/{gcp.project}/locations/-")
    answer = gcp.get(gcp.container.list_clusters, request)
    return list(answer.clusters) if answer is not None else ()


def _networks(gcp: Gcp, cluster: str | None) -> Mapping[str, str]:
    """Return the clusters by the paths of their networks: of this cluster in this region, or of all."""
    listing = gcp.rest(sdk.compute.NetworksClient).list
    rows = gcp.rows(listing, sdk.compute.ListNetworksRequest(project=gcp.project))
    found = {ids.path(row.self_link): labels.described(row.description) for row in rows}
    return {
        path: tags[TAG_CLUSTER]
        for path, tags in found.items()
        if is_ours(tags, cluster) and (cluster is None or tags.get(TAG_REGION, gcp.region) == gcp.region)
    }


def _without_labels(gcp: Gcp, scope: Scope) -> list[Observed]:
    """Return GKE clusters with cloudrec's name and without its labels, which its driver does not find."""
    return [
        unmanaged(
            f"GKE cluster {row.name}",
            f"projects/{gcp.project}/locations/{row.location}/clusters/{row.name}",
            cluster=belonging.title(row),
            location=gcp.region,
            hourly_usd=gcp.prices.service("gke-cluster"),
        )
        for row in scope.clusters
        if row.name.startswith(gke.PREFIX)
        and gke.region_of(row.location) == gcp.region
        and scope.cluster in {None, belonging.title(row)}
        and not is_ours(labels.decode(row.resource_labels), None)
    ]

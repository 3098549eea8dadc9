"""The provider: puts together what the other files of this folder describe."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.cloud.driver import search_all
from cloudrec.errors import PreflightError
from cloudrec.provider import Finding, GuardAccess, Halt, Registry
from cloudrec.providers.kubernetes import (
    access,
    halting,
    identity,
    leftovers,
    offers,
    private,
    quota,
    settings,
)
from cloudrec.providers.kubernetes import cluster as control_plane
from cloudrec.providers.kubernetes.client import CLUSTER, Adopted, Clusters
from cloudrec.providers.kubernetes.cluster import ACCOUNT, NAMESPACE
from cloudrec.providers.kubernetes.labels import tags_of
from cloudrec.providers.kubernetes.layout import Layout
from cloudrec.providers.kubernetes.nodes import pool_of
from cloudrec.providers.kubernetes.settings import settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.cloud.driver import CloudDriver
    from cloudrec.engine.graph import Driver, Observed, Resource
    from cloudrec.home import Home
    from cloudrec.provider import Access, Offer
    from cloudrec.spec.models import ClusterSpec

# Each part describes its resources, gives its drivers, and tells which kinds one of a kind may need.
_PARTS = (control_plane, identity, leftovers)


class KubernetesProvider:
    """Clusters that others made, adopted by a context of the user's kubeconfig."""

    name = "kubernetes"
    control_plane = CLUSTER
    settle_s = 0.0  # the API server shows a change at once
    kinds: Mapping[str, AbstractSet[str]] = MappingProxyType(
        {**private.KINDS, **{kind: needs for part in _PARTS for kind, needs in part.KINDS.items()}}
    )

    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self._home = home
        self._clusters = Clusters(home, environment)

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings, and refuse what only who makes nodes can do."""
        settings.check(cluster)

    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return the nodes that are there."""
        adopted, chosen = self._reach(cluster), settings_of(cluster)
        pool = pool_of(adopted.kube.list("Node"), chosen)
        return [offers.offer(pool, adopted.place.context, chosen)] if pool.names else []

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return the nodes that are there; nobody has prices for them but who pays."""
        del refresh
        return self.offers(cluster)

    def preflight(self, cluster: ClusterSpec) -> Sequence[Finding]:
        """Look whether it can be reached, and where it can at everything else."""
        try:
            adopted = self._reach(cluster)
            found = [quota.reached(adopted)]
            layout = self._layout(cluster, adopted)
            pool = pool_of(adopted.kube.list("Node"), layout.settings)
        except PreflightError as error:
            return [Finding(check="cluster", ok=False, found=error.message, remedy=error.remedy or "")]
        return [*found, *quota.findings(adopted, layout, pool)]

    def resources(self, cluster: ClusterSpec) -> Sequence[Resource]:
        """Describe what should exist."""
        layout = self._layout(cluster, self._reach(cluster))
        return [resource for part in _PARTS for resource in part.resources(layout)]

    def drivers(self, cluster: ClusterSpec) -> Mapping[str, Driver]:
        """Return the drivers of all kinds."""
        adopted = self._reach(cluster)
        namespace = settings_of(cluster).namespace_of(cluster.title)
        copies: Mapping[str, Driver] = {
            private.KUBECONFIG: private.KubeconfigDriver(self._home, adopted.place.config)
        }
        return {**copies, **_drivers(adopted, namespace)}

    def locations(self, cluster: ClusterSpec) -> Sequence[str]:
        """Tell which context the spec means; the one that was adopted before where it names none."""
        chosen = settings_of(cluster)
        location = self._clusters.location(cluster, chosen)
        return (self._clusters.place(cluster.title, location, kubeconfig=chosen.kubeconfig).location,)

    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Look by label in the contexts that are named; in the current one and those known when none is."""
        if locations:
            places = [self._clusters.place(cluster or "", location) for location in locations]
        else:
            places = list(self._clusters.places())
        found = list(private.KubeconfigDriver(self._home, None).search(cluster))
        seen = set[str]()
        for place in places:
            adopted = self._clusters.at(place)
            if adopted.uid not in seen:
                seen.add(adopted.uid)
                found += search_all(_drivers(adopted, "").values(), cluster)
        return found

    def access(self, cluster: ClusterSpec) -> Access:
        """Tell how to reach the cluster, and write its kubeconfig."""
        adopted = self._reach(cluster)
        return access.of(self._layout(cluster, adopted), adopted, self._home)

    def registry(self, cluster: ClusterSpec) -> Registry:
        """Tell where images go; whoever pushes is logged in there already."""
        repository = settings_of(cluster).image_repository
        if not repository:
            raise PreflightError(
                f"cluster {cluster.title!r} was not told where its images are",
                remedy="--set cluster.settings.image_repository=registry.example/team/trainer, after a login",
            )
        return Registry(address=repository.partition("/")[0], repository=repository)

    def guard(self, cluster: ClusterSpec) -> GuardAccess:
        """Tell what the guard needs: it is in the cluster, which it knows by its identity."""
        adopted = self._reach(cluster)
        hidden = {"context": None, "kubeconfig": None, "identity": adopted.uid}
        inside = cluster.model_copy(update={"region": None, "settings": {**cluster.settings, **hidden}})
        return GuardAccess(cluster=inside, cordons=True)

    def halt(self, cluster: ClusterSpec) -> Halt:
        """Let no pod come to the nodes that train any more: to scale them is their owner's business."""
        return halting.halt(self._reach(cluster), settings_of(cluster))

    def _reach(self, cluster: ClusterSpec) -> Adopted:
        """Return the cluster; PreflightError where it is not to be reached, or is another one."""
        chosen = settings_of(cluster)
        location = self._clusters.location(cluster, chosen)
        place = self._clusters.place(cluster.title, location, kubeconfig=chosen.kubeconfig)
        adopted = self._clusters.at(place)
        self._clusters.check(cluster.title, chosen, adopted)
        return adopted

    def _layout(self, cluster: ClusterSpec, adopted: Adopted) -> Layout:
        """Decide names, and look what of it others have made."""
        chosen = settings_of(cluster)
        layout = Layout(cluster=cluster, settings=chosen, config=adopted.place.config)
        space = adopted.kube.get("Namespace", layout.namespace)
        account = adopted.kube.get("ServiceAccount", chosen.service_account, namespace=layout.namespace)
        there = {NAMESPACE: space, ACCOUNT: account}
        foreign = {
            kind
            for kind, found in there.items()
            if found is not None and tags_of(found, kind).get("cloudrec-cluster") != cluster.title
        }
        return Layout(
            cluster=cluster, settings=chosen, config=adopted.place.config, foreign=frozenset(foreign)
        )


def _drivers(adopted: Adopted, namespace: str) -> Mapping[str, CloudDriver]:
    return {kind: driver for part in _PARTS for kind, driver in part.drivers(adopted, namespace).items()}

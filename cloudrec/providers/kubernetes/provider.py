"""The Kubernetes provider, composed of the other modules of this folder."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError
from cloudrec.findings import Finding
from cloudrec.kubernetes.client.errors import DeniedError
from cloudrec.kubernetes.client.target import pod_security
from cloudrec.providers.base.driver import search_all
from cloudrec.providers.base.protocol import GuardAccess, Halt, Registry
from cloudrec.providers.base.reading import answers_read
from cloudrec.providers.kubernetes import access, offers, settings
from cloudrec.providers.kubernetes import preflight as quota
from cloudrec.providers.kubernetes.api import labels, private
from cloudrec.providers.kubernetes.api.client import CLUSTER, Adopted, Clusters
from cloudrec.providers.kubernetes.cleanup import leftovers
from cloudrec.providers.kubernetes.cluster import cluster as control_plane
from cloudrec.providers.kubernetes.cluster.cluster import ACCOUNT, NAMESPACE
from cloudrec.providers.kubernetes.identity import identity
from cloudrec.providers.kubernetes.layout import KubeLayout
from cloudrec.providers.kubernetes.nodes.devices import listed
from cloudrec.providers.kubernetes.nodes.nodes import pool_of
from cloudrec.providers.kubernetes.settings import settings_of
from cloudrec.providers.kubernetes.storage import bucket

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Driver, Observed, Resource
    from cloudrec.home import Home
    from cloudrec.providers.base.access import KubernetesAccess
    from cloudrec.providers.base.driver import CloudDriver
    from cloudrec.providers.base.protocol import Offer
    from cloudrec.providers.kubernetes.settings import KubernetesSettings
    from cloudrec.spec.models import ClusterSpec

_NODES = "the nodes: they are not cloudrec's to scale or to cordon"
_PARTS = (control_plane, identity, leftovers)


class KubernetesProvider:
    """Existing clusters, adopted through a context of the user's kubeconfig."""

    name = "kubernetes"
    control_plane = CLUSTER
    settle_s = 0.0  # the API server shows a change at once
    kinds: Mapping[str, AbstractSet[str]] = MappingProxyType(
        {**private.KINDS, **{kind: needs for part in _PARTS for kind, needs in part.KINDS.items()}}
    )

    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = environment
        self._clusters = Clusters(home, environment)

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings; SpecError for those that need a provider which creates nodes."""
        settings.check(cluster)

    @answers_read()
    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return the existing nodes that can train; empty if there are none."""
        adopted, chosen = self._reach(cluster), settings_of(cluster)
        pool = pool_of(listed(adopted.kube)[0], chosen)
        return [offers.offer(pool, adopted.place.context, chosen)] if pool.names else []

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return the existing nodes; `refresh` has no effect, since the only price is a setting."""
        del refresh
        return self.offers(cluster)

    @answers_read()
    def preflight(self, cluster: ClusterSpec) -> Sequence[Finding]:
        """Check that the cluster can be reached, and then its permissions and nodes."""
        try:
            adopted = self._reach(cluster)
            found = [quota.reached(adopted)]
            layout = self._layout(cluster, adopted)
            pool = pool_of(listed(adopted.kube)[0], layout.settings)
        except PreflightError as error:
            return [Finding(check="cluster", ok=False, found=error.message, remedy=error.remedy or "")]
        return [*found, *quota.findings(adopted, layout, pool), *self._looked(layout.settings)]

    @answers_read()
    def resources(self, cluster: ClusterSpec) -> Sequence[Resource]:
        """Return the objects that `up` creates in the cluster, and the private kubeconfig."""
        layout = self._layout(cluster, self._reach(cluster))
        return [resource for part in _PARTS for resource in part.resources(layout)]

    @answers_read()
    def drivers(self, cluster: ClusterSpec) -> Mapping[str, Driver]:
        """Return kind -> driver."""
        adopted = self._reach(cluster)
        namespace = settings_of(cluster).namespace_of(cluster.title)
        copies: Mapping[str, Driver] = {
            private.KUBECONFIG: private.KubeconfigDriver(self._home, adopted.place.config)
        }
        return {**copies, **_drivers(adopted, namespace)}

    def locations(self, cluster: ClusterSpec) -> Sequence[str]:
        """Return the spec's context; if it names none, the context that was adopted under this name."""
        chosen = settings_of(cluster)
        location = self._clusters.location(cluster, chosen)
        return (self._clusters.place(cluster.title, location, kubeconfig=chosen.kubeconfig).location,)

    @answers_read()
    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Search by label in the named contexts; if none is named, in the current and the adopted ones."""
        if locations:
            places = [self._clusters.place(cluster or "", location) for location in locations]
        else:
            places = list(self._clusters.places())
        found = list(private.KubeconfigDriver(self._home, None).search(cluster))
        seen = set[str]()
        for place in places:
            adopted = self._clusters.at(place)
            # Several contexts may lead to one cluster (other users, other namespaces).
            if adopted.uid not in seen:
                seen.add(adopted.uid)
                found += search_all(_drivers(adopted, "").values(), cluster)
        return found

    @answers_read()
    def access(self, cluster: ClusterSpec) -> KubernetesAccess:
        """Return how to reach the cluster, and write its kubeconfig."""
        adopted = self._reach(cluster)
        return access.of(self._layout(cluster, adopted), adopted, self._home)

    def registry(self, cluster: ClusterSpec) -> Registry:
        """Return the registry of `image_repository`, without a login: the user has run `docker login`."""
        repository = settings_of(cluster).image_repository
        if not repository:
            raise PreflightError(
                f"cluster {cluster.title!r} has no registry",
                remedy="--set cluster.settings.image_repository=registry.example/team/trainer, after a login",
            )
        return Registry(address=repository.partition("/")[0], repository=repository)

    @answers_read()
    def guard(self, cluster: ClusterSpec) -> GuardAccess:
        """Return the spec for the guard, which runs in the cluster and needs no cloud identity."""
        adopted = self._reach(cluster)
        # The user's context and file do not exist in a pod. The uid keeps the guard to this very cluster.
        hidden = {"context": None, "kubeconfig": None, "identity": adopted.uid}
        inside = cluster.model_copy(update={"region": None, "settings": {**cluster.settings, **hidden}})
        return GuardAccess(cluster=inside)

    def halt(self, cluster: ClusterSpec) -> Halt:
        """Return the nodes as left: only their owner may scale or cordon them; the guard suspends runs."""
        del cluster
        return Halt(left=(_NODES,), is_final=True)

    def probe_storage(self, cluster: ClusterSpec) -> Finding | None:
        """Write an object to the runs' bucket and remove it; None if only pods reach the bucket."""
        chosen = settings_of(cluster)
        if not chosen.storage or not chosen.probe_storage:
            return None
        return bucket.probe(bucket.opened(chosen.storage, self._environment))

    def _looked(self, chosen: KubernetesSettings) -> Sequence[Finding]:
        """Return whether the runs' bucket exists and can be listed; nothing if only pods reach it."""
        if not chosen.storage or not chosen.probe_storage:
            return ()
        return (bucket.look(chosen.storage, self._environment),)

    def _reach(self, cluster: ClusterSpec) -> Adopted:
        """Return the cluster; PreflightError if it has no usable context, or is not the adopted one."""
        chosen = settings_of(cluster)
        location = self._clusters.location(cluster, chosen)
        place = self._clusters.place(cluster.title, location, kubeconfig=chosen.kubeconfig)
        adopted = self._clusters.at(place)
        self._clusters.check(cluster.title, chosen, adopted)
        return adopted

    def _layout(self, cluster: ClusterSpec, adopted: Adopted) -> KubeLayout:
        """Return the names of a cluster's objects, and which of them existed before `up`."""
        chosen = settings_of(cluster)
        layout = KubeLayout(cluster=cluster, settings=chosen, config=adopted.place.config)
        space = adopted.kube.get("Namespace", layout.namespace)
        account = adopted.kube.get("ServiceAccount", chosen.service_account, namespace=layout.namespace)
        there = {NAMESPACE: space, ACCOUNT: account}
        foreign = frozenset(
            kind
            for kind, found in there.items()
            if found is not None and not labels.is_made(found, cluster.title)
        )
        level = layout.level if NAMESPACE in foreign else pod_security(_fabric(adopted, chosen))
        return replace(layout, foreign=foreign, level=level)


def _fabric(adopted: Adopted, chosen: KubernetesSettings) -> str:
    """Return the fabric of the nodes; "none" if cloudrec may not list them."""
    if chosen.fabric is not None:
        return chosen.fabric
    try:
        return pool_of(listed(adopted.kube)[0], chosen).fabric
    except DeniedError:
        return "none"


def _drivers(adopted: Adopted, namespace: str) -> Mapping[str, CloudDriver]:
    return {kind: driver for part in _PARTS for kind, driver in part.drivers(adopted, namespace).items()}

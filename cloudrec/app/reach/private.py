"""A private Kubernetes API: whether this machine is in its network, and the ways into it.

`up` creates the network of a cluster itself, so before the first `up` no machine is in it, and no VPN or
peering leads to it: a first `up` with a private API cannot install what runs need. eksctl refuses it likewise
(its user guide, "Cluster Access": private access alone is not supported during creation).
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

from cloudrec.app.reach.ways_in import ways_in
from cloudrec.app.readiness import answers
from cloudrec.app.records import known_clusters
from cloudrec.errors import CloudrecError, PreflightError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.providers.base.protocol import closed_api

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.app.context import AppContext
    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.providers.base.protocol import Provider
    from cloudrec.spec.models import ClusterSpec

_CONNECT_S = 3.0
_SLICES = "discovery.k8s.io/v1/EndpointSlice"
_API = "kubernetes.io/service-name=kubernetes"


def check_private(app: AppContext, provider: Provider, cluster: ClusterSpec, *, force: bool) -> None:
    """Refuse a private Kubernetes API that this machine does not reach, before anything is made.

    Args:
        app: what every use case works with.
        provider: the cluster's.
        cluster: the request.
        force: create it anyway; this only reports what it means.

    Raises:
        PreflightError: the API would be private, and this machine is not in its network.
    """
    if closed_api(provider, cluster) is None:
        return
    words = (
        f"the Kubernetes API of cluster {cluster.title!r} is private: only the cluster's network reaches it"
    )
    if _is_inside(app, provider, cluster):
        app.report(f"note: {words}, and this machine is in it")
        return
    effect = "`up` installs add-ons, and `train` starts runs, only from there"
    if force or app.environment.get("CLOUDREC_CLUSTER_ADDONS", cluster.addons) == "none":
        app.report(f"note: {words}. {effect}; this machine is not in it")
        for way in ways_in(cluster):
            app.report(f"  {way}")
        return
    others = "".join(f"\n  {way}" for way in ways_in(cluster))
    raise PreflightError(
        f"{words}, and this machine is not in it. {effect}",
        remedy="--access auto admits this machine's address only; or add --force, which creates a cluster "
        "that is NOT READY, and continue from inside by one of these:\n"
        f"  a machine in the cluster's network, or a VPN or peering to it: the same commands{others}",
    )


def _is_inside(app: AppContext, provider: Provider, cluster: ClusterSpec) -> bool:
    """Return whether this machine reaches the API of an existing cluster by the cluster's network."""
    records = [known for known in known_clusters(app, name=cluster.title) if not known.record.is_down]
    try:
        access = provider.access(cluster) if records else None
        if not isinstance(access, KubernetesAccess):
            return False
        if records[0].cluster.is_private:
            return answers(access.target)
        return any(_connects(*place) for place in _addresses_inside(access.target))
    except CloudrecError:
        return False  # the cluster is not complete, or its public API does not answer either


def _addresses_inside(target: ClusterTarget) -> Iterator[tuple[str, int]]:
    """Yield the API server's own addresses, which its public name does not lead to."""
    with Kube.connect(target, patience_s=_CONNECT_S, connect_s=_CONNECT_S, read_s=_CONNECT_S) as kube:
        for part in kube.list(_SLICES, namespace="default", labels=_API):
            for endpoint in part.get("endpoints") or ():
                for address in endpoint.get("addresses") or ():
                    if _is_inner(address):
                        yield from ((address, int(port["port"])) for port in part.get("ports") or ())


def _is_inner(address: str) -> bool:
    """Return whether an address is of a private network, and of another machine."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return found.is_private and not found.is_loopback


def _connects(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), _CONNECT_S).close()
    except OSError:
        return False
    return True

"""Who reaches a cluster's Kubernetes API: this machine's public address, and whether a cluster admits it."""

from __future__ import annotations

import http.client
import ipaddress
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cloudrec.app.reach.ways_in import ways_in
from cloudrec.app.readiness import answers
from cloudrec.errors import PreflightError, UsageError
from cloudrec.kubernetes.client.credentials import TUNNEL
from cloudrec.kubernetes.client.errors import ApiUnreachableError
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.providers.base.protocol import CreatesClusters
from cloudrec.spec.models import ACCESS_AUTO

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec.app.context import AppContext
    from cloudrec.providers.base.access import Access
    from cloudrec.providers.base.protocol import Provider
    from cloudrec.spec.models import ClusterSpec

SERVICE_VARIABLE = "CLOUDREC_ADDRESS_SERVICE"
# Each answers a GET with the caller's IPv4 address as text. They are asked in turn: one may be down.
SERVICES = ("https://checkip.amazonaws.com", "https://api.ipify.org", "https://ipv4.icanhazip.com")
_TIMEOUT_S = 5.0
_PROBE_S = 3.0  # an API that can be reached answers in a fraction of it
_MOST_BYTES = 256
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_REMEDY = (
    "name it: --access ADDRESS (cluster.access), or --access private for an API that only the cluster's "
    f"network reaches; {SERVICE_VARIABLE} names another service"
)


def public_address(environment: Mapping[str, str], *, timeout_s: float = _TIMEOUT_S) -> ipaddress.IPv4Address:
    """Return the address from which this machine's requests reach the internet.

    Args:
        environment: CLOUDREC_ADDRESS_SERVICE names the service to ask instead of the built-in ones.
        timeout_s: seconds for each service.

    Raises:
        PreflightError: no service answers with a public IPv4 address.
    """
    own = environment.get(SERVICE_VARIABLE, "")
    failures = []
    for url in (own,) if own else SERVICES:
        parts = urlsplit(url)
        # An answer that another machine on the way could change would let that machine into the cluster.
        if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            raise PreflightError(
                f"{SERVICE_VARIABLE} is {url!r}; it must be an https:// URL",
                remedy=f"name one such as {SERVICES[0]}",
            )
        try:
            address = ipaddress.IPv4Address(_answer(url, timeout_s))
        except (OSError, ValueError, http.client.HTTPException) as error:
            failures.append(f"{parts.hostname}: {_reason(error)}")
            continue
        if own or address.is_global:
            return address
        failures.append(f"{parts.hostname}: {address} is not a public address")
    raise PreflightError(
        f"this machine's public address was not found ({'; '.join(failures)})", remedy=_REMEDY
    )


def resolved(
    provider: Provider, cluster: ClusterSpec, environment: Mapping[str, str]
) -> tuple[ClusterSpec, str]:
    """Return the spec with this machine's address in place of `auto`, and that address; empty if not asked.

    A provider whose API authorizes callers by identity, from any address, keeps `auto` alone as it is.

    Raises:
        PreflightError: the address was not found.
    """
    by_address = admits_by_address(provider) or (
        isinstance(provider, CreatesClusters) and cluster.access_blocks
    )
    if not by_address or ACCESS_AUTO not in cluster.access.split(","):
        return cluster, ""
    block = f"{public_address(environment)}/32"
    blocks = sorted({block, *cluster.access_blocks}, key=ipaddress.IPv4Network)
    return cluster.model_copy(update={"access": ",".join(blocks)}), block


@dataclass(frozen=True, kw_only=True)
class AccessView:
    """Who reaches a cluster, as `cloudrec access` shows it.

    Attributes:
        cluster: the cluster's name.
        who: `private`, addresses and blocks separated by commas, or what authorizes callers from any address.
        address: this machine's public address; empty if it is not known or does not matter.
        is_admitted: whether the API answers this machine, judged by addresses; None if that is not known.
    """

    cluster: str
    who: str
    address: str
    is_admitted: bool | None


def access_view(app: AppContext, cluster: ClusterSpec) -> AccessView:
    """Return who reaches a cluster, and whether this machine is among them.

    Raises:
        UsageError: cloudrec does not create such clusters, so it does not control who reaches them.
    """
    if not isinstance(app.provider(cluster.provider), CreatesClusters):
        raise UsageError(
            f"cluster {cluster.title!r} is of provider {cluster.provider!r}: cloudrec does not control who "
            f"reaches it",
            remedy="name a cluster that `cloudrec up` created on a cloud with --cluster",
        )
    if cluster.is_private:
        return AccessView(cluster=cluster.title, who=cluster.access, address="", is_admitted=False)
    if not cluster.access_blocks:
        who = "callers with a permission of the cloud, from any address"
        return AccessView(cluster=cluster.title, who=who, address="", is_admitted=None)
    try:
        address = public_address(app.environment)
    except PreflightError:
        return AccessView(cluster=cluster.title, who=cluster.access, address="", is_admitted=None)
    admitted = _is_in(address, cluster.access_blocks)
    return AccessView(cluster=cluster.title, who=cluster.access, address=str(address), is_admitted=admitted)


def admits_by_address(provider: Provider) -> bool:
    """Return whether the provider's clusters admit callers of their API by address."""
    return isinstance(provider, CreatesClusters) and provider.admits_by_address


def refusal(
    provider: Provider, cluster: ClusterSpec, environment: Mapping[str, str], *, timeout_s: float = 2.0
) -> ApiUnreachableError | None:
    """Return why a cluster's API cannot answer this machine, judged by addresses; None if it should answer.

    Args:
        provider: the cluster's.
        cluster: its spec, as `up` noted it.
        environment: see `public_address`.
        timeout_s: seconds for each address service.
    """
    if not isinstance(provider, CreatesClusters) or not cluster.access_blocks or environment.get(TUNNEL):
        return None
    try:
        address = public_address(environment, timeout_s=timeout_s)
    except PreflightError:
        return None  # nothing is known: the API's own silence is the answer
    if _is_in(address, cluster.access_blocks):
        return None
    return ApiUnreachableError(
        f"this machine's address is {address} now, and the Kubernetes API of cluster {cluster.title!r} "
        f"admits {', '.join(cluster.access_blocks)}",
        remedy=f"`cloudrec access auto --cluster {cluster.title}` admits this machine",
    )


def refuse_unreachable(app: AppContext, cluster: ClusterSpec, access: Access) -> None:
    """Refuse within seconds what would wait minutes for an API that does not answer this machine.

    Raises:
        ApiUnreachableError: the API does not answer; the remedy is that of the cause, if addresses show one.
    """
    provider = app.provider(cluster.provider)
    if not isinstance(access, KubernetesAccess) or not isinstance(provider, CreatesClusters):
        return
    if answers(access.target, wait_s=_PROBE_S):
        return
    if cause := excluded(provider, cluster, app.environment):
        raise cause
    if answers(access.target, wait_s=_PROBE_S):  # the first attempt met a lost packet, or a busy server
        return
    raise ApiUnreachableError(
        f"the Kubernetes API of cluster {cluster.title!r} did not answer two attempts from here, each of "
        f"{_PROBE_S:g} s",
        remedy="check this machine's network; `cloudrec status` shows the state of the cluster",
    )


def excluded(
    provider: Provider, cluster: ClusterSpec, environment: Mapping[str, str]
) -> ApiUnreachableError | None:
    """Return why a cluster's API cannot answer this machine: it is private, or admits other addresses."""
    if not cluster.is_private:
        return refusal(provider, cluster, environment)
    return ApiUnreachableError(
        f"the Kubernetes API of cluster {cluster.title!r} is private, and does not answer from here",
        remedy="run this from a machine in the cluster's network, or through a VPN or peering; "
        f"`cloudrec access auto --cluster {cluster.title}` admits this machine"
        + "".join(f"; or by {way}" for way in ways_in(cluster)),
    )


def _is_in(address: ipaddress.IPv4Address, blocks: Iterable[str]) -> bool:
    return any(address in ipaddress.IPv4Network(block) for block in blocks)


def _answer(url: str, timeout_s: float) -> str:
    with urllib.request.urlopen(url, timeout=timeout_s) as reply:  # noqa: S310 - https, or on this machine
        text: bytes = reply.read(_MOST_BYTES)
    return text.decode("ascii", errors="replace").strip()


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) or type(error).__name__

"""With whom a run's pods may talk: among themselves, with DNS, with stores and with the node's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.manifests.ray import DASHBOARD_PORT, OPERATOR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What answers DNS on a node itself, where a cluster has such a thing: NodeLocal DNSCache, GKE's Cloud DNS.
_NODE_DNS = ("169.254.20.10/32", "169.254.169.254/32")
# The node's metadata and the agents that give pods their cloud identity: AWS (also over IPv6), Azure, GCP.
_METADATA = {
    "169.254.169.254/32": (80,),
    "169.254.169.252/32": (987, 988),
    "169.254.170.23/32": (80,),
    "fd00:ec2::254/128": (80,),
    "fd00:ec2::23/128": (80,),
}
_EVERYWHERE = ("0.0.0.0/0", "::/0")  # stores have no addresses of their own, only names
_HTTPS = 443


def among(selector: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return that only pods with these labels get in."""
    return [{"from": [{"podSelector": {"matchLabels": dict(selector)}}]}]


def from_ray_operator() -> list[dict[str, Any]]:
    """Return that Ray's operator may ask the head how the job is doing; it must show the cluster's token."""
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": dict(OPERATOR)}}
    return [{"from": [operator], "ports": [_tcp(DASHBOARD_PORT)]}]


def outwards(*, to: Mapping[str, str] | None, ports: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Return whom pods may reach.

    Args:
        to: labels of pods of the same namespace, all of whose ports may be reached; None for none.
        ports: more ports of stores and services than that of https.
    """
    own = [{"to": [{"podSelector": {"matchLabels": dict(to)}}]}] if to else []
    reached = [_tcp(port) for port in sorted({_HTTPS, *ports})]
    return [
        *own,
        {"to": [*_dns()], "ports": [{"protocol": "UDP", "port": 53}, _tcp(53)]},
        *(
            {"to": [_block(cidr)], "ports": [_tcp(port) for port in opened]}
            for cidr, opened in _METADATA.items()
        ),
        {"to": [_block(cidr) for cidr in _EVERYWHERE], "ports": reached},
    ]


def _dns() -> list[dict[str, Any]]:
    system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    return [system, *(_block(cidr) for cidr in _NODE_DNS)]


def _block(cidr: str) -> dict[str, Any]:
    return {"ipBlock": {"cidr": cidr}}


def _tcp(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}

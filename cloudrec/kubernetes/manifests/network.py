"""The rules of a run's NetworkPolicy: pods reach each other, DNS, object stores and the node's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.manifests.ray import DASHBOARD_PORT, OPERATOR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# DNS servers on the node itself: NodeLocal DNSCache, and GKE's Cloud DNS.
_NODE_DNS = ("169.254.20.10/32", "169.254.169.254/32")
# The node's metadata server, and the agents with the pods' cloud credentials: AWS (also by IPv6), Azure, GCP.
_METADATA = {
    "169.254.169.254/32": (80,),
    "169.254.169.252/32": (987, 988),
    "169.254.170.23/32": (80,),
    "fd00:ec2::254/128": (80,),
    "fd00:ec2::23/128": (80,),
}
_EVERYWHERE = ("0.0.0.0/0", "::/0")  # object stores have names, but no fixed addresses for a rule
_HTTPS = 443


def among(selector: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the ingress rule that admits only pods with these labels."""
    return [{"from": [{"podSelector": {"matchLabels": dict(selector)}}]}]


def from_ray_operator() -> list[dict[str, Any]]:
    """Return the ingress rule by which KubeRay reads the job's state from the head.

    The head also requires the Ray cluster's token.
    """
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": dict(OPERATOR)}}
    return [{"from": [operator], "ports": [_tcp(DASHBOARD_PORT)]}]


def from_scrapers(port: int) -> list[dict[str, Any]]:
    """Return the ingress rule by which any pod of the cluster reads metrics; none for port 0."""
    return [{"from": [{"namespaceSelector": {}}], "ports": [_tcp(port)]}] if port else []


def outwards(*, to: Mapping[str, str] | None, ports: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Return the egress rules of pods.

    Args:
        to: labels of pods in the same namespace that may be reached on all ports; None for none.
        ports: ports of stores and services, besides 443.
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

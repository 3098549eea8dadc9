"""What the controllers inside a cluster create, and leave behind if the cluster is deleted first.

`leave` of /_control: {"cluster": NAME, "kinds": ["disk", "forwarding-rule", "network-endpoint-group",
"firewall", "address", "health-check", "target-pool", "placement-policy", "endpoint-subnet"]} makes one
of each kind now, with what it needs: a forwarding rule has a target pool, a health check a firewall rule.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api.registry import setting
from cloudrec_sandbox.gcp.resources import store
from cloudrec_sandbox.gcp.resources.places import zones_of
from cloudrec_sandbox.gcp.services.compute import references
from cloudrec_sandbox.gcp.services.gke.state import ClusterState, Gke

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec_sandbox.gcp.api.world import World

_NOUNS = {
    "addresses": "address",
    "disks": "disk",
    "firewalls": "firewall",
    "forwardingRules": "forwardingRule",
    "healthChecks": "healthCheck",
    "networkEndpointGroups": "networkEndpointGroup",
    "resourcePolicies": "resourcePolicy",
    "subnetworks": "subnetwork",
    "targetPools": "targetPool",
}


@dataclass
class Leftovers:
    """The paths of the orphaned resources so far."""

    left: list[str] = field(default_factory=list)


@dataclass
class Leaver:
    """One cluster whose controllers make resources: a Service has one name in all parts of its balancer."""

    world: World
    cluster: ClusterState
    balancer: str = field(default_factory=lambda: f"a{secrets.token_hex(16)}"[:32])

    @property
    def zone(self) -> str:
        """Return the zone of its first nodes."""
        return zones_of(self.cluster.location)[0]

    @property
    def service(self) -> str:
        """Return the description that controllers write for a Service."""
        return json.dumps({"kubernetes.io/service-name": "default/web"})

    def add(self, place: str, kind: str, name: str, document: dict[str, Any]) -> str:
        """Make a resource, unless it exists; return its path."""
        path = f"projects/{self.cluster.project}/{place}/{kind}/{name}"
        if store.find(self.world, "compute", path) is None:
            store.identify(self.world, document, path, f"compute#{_NOUNS[kind]}")
            where, _, title = place.partition("/")
            if title:
                document[where.removesuffix("s")] = store.link(f"projects/{self.cluster.project}/{place}")
            store.add(self.world, "compute", kind, path, document)
            self.world.state(Leftovers).left.append(path)
        return path

    @property
    def region(self) -> str:
        """Return the place of regional resources."""
        return f"regions/{self.cluster.region}"


def _disk(leaver: Leaver) -> None:
    """Make the disk of a claim whose class keeps it."""
    name, zone = f"pvc-{secrets.token_hex(16)}", leaver.zone
    kind = f"projects/{leaver.cluster.project}/zones/{zone}/diskTypes/pd-balanced"
    facts = {
        "kubernetes.io/created-for/pv/name": name,
        "kubernetes.io/created-for/pvc/name": "data",
        "kubernetes.io/created-for/pvc/namespace": "default",
        "storage.gke.io/created-by": "pd.csi.storage.gke.io",
    }
    document = {
        "description": json.dumps(facts),
        "labels": {
            "goog-gke-volume": "",
            "goog-k8s-cluster-location": leaver.cluster.location,
            "goog-k8s-cluster-name": leaver.cluster.name,
        },
        "sizeGb": "20",
        "status": "READY",
        "type": store.link(kind),
    }
    references.stamp(document, "labelFingerprint")
    leaver.add(f"zones/{zone}", "disks", name, document)


def _target_pool(leaver: Leaver) -> str:
    """Make the target pool of a Service, which has its nodes."""
    folder = f"projects/{leaver.cluster.project}/zones/{leaver.zone}/instances"
    document = {
        "description": leaver.service,
        "instances": [store.link(f"{folder}/gke-{leaver.cluster.name}-default-{secrets.token_hex(4)}-0001")],
        "sessionAffinity": "NONE",
    }
    return leaver.add(leaver.region, "targetPools", leaver.balancer, document)


def _forwarding_rule(leaver: Leaver) -> None:
    """Make the forwarding rule of a Service."""
    document = {
        "description": leaver.service,
        "IPAddress": "34.72.10.20",
        "IPProtocol": "TCP",
        "portRange": "80-80",
        "loadBalancingScheme": "EXTERNAL",
        "networkTier": "PREMIUM",
        "target": store.link(_target_pool(leaver)),
    }
    leaver.add(leaver.region, "forwardingRules", leaver.balancer, document)
    _firewall(leaver)


def _rule(leaver: Leaver, ports: list[str]) -> dict[str, Any]:
    return {
        "network": store.link(leaver.cluster.network),
        "description": leaver.service,
        "direction": "INGRESS",
        "priority": 1000,
        "allowed": [{"IPProtocol": "tcp", "ports": ports}],
        "sourceRanges": ["0.0.0.0/0"],
        "targetTags": [f"{leaver.cluster.tag()}-node"],
        "disabled": False,
    }


def _firewall(leaver: Leaver) -> None:
    """Make the firewall rule that lets a Service's clients in."""
    leaver.add("global", "firewalls", f"k8s-fw-{leaver.balancer}", _rule(leaver, ["80"]))


def _health_check(leaver: Leaver) -> None:
    """Make the health check of Services' nodes, and the firewall rule that lets it in."""
    name = f"k8s-{leaver.cluster.message.id[:16]}-node"
    document = {
        "type": "HTTP",
        "httpHealthCheck": {"port": 10256, "requestPath": "/healthz"},
        "checkIntervalSec": 8,
    }
    leaver.add("global", "healthChecks", name, document)
    leaver.add("global", "firewalls", f"{name}-http-hc", _rule(leaver, ["10256"]))


def _endpoint_group(leaver: Leaver) -> None:
    """Make the group with a Service's pods in one zone."""
    uid = leaver.cluster.message.id[:8]
    facts = {"cluster-uid": uid, "namespace": "default", "service-name": "web", "port": "80"}
    document = {
        "description": json.dumps(facts),
        "network": store.link(leaver.cluster.network),
        "subnetwork": store.link(leaver.cluster.subnetwork),
        "networkEndpointType": "GCE_VM_IP_PORT",
        "size": 0,
    }
    name = f"k8s1-{uid}-default-web-80-{secrets.token_hex(4)}"
    leaver.add(f"zones/{leaver.zone}", "networkEndpointGroups", name, document)


def _address(leaver: Leaver) -> None:
    """Reserve a Service's address, as its controller does before it makes the rule."""
    document = {
        "description": leaver.service,
        "address": "34.72.10.21",
        "addressType": "EXTERNAL",
        "networkTier": "PREMIUM",
    }
    leaver.add(leaver.region, "addresses", leaver.balancer, document)
    _firewall(leaver)


def _placement_policy(leaver: Leaver) -> None:
    """Make the policy of a pool with compact placement."""
    document = {"groupPlacementPolicy": {"collocation": "COLLOCATED"}, "status": "READY"}
    name = f"gke-{leaver.cluster.name}-gpu-{secrets.token_hex(4)}"
    leaver.add(leaver.region, "resourcePolicies", name, document)


def _endpoint_subnet(leaver: Leaver) -> None:
    """Make the subnet of the control plane's private endpoint.

    See "Clusters with Private Service Connect" in GKE's documentation of private clusters.
    """
    document = {
        "network": store.link(leaver.cluster.network),
        "ipCidrRange": "172.16.0.0/28",
        "purpose": "PRIVATE",
        "region": store.link(f"projects/{leaver.cluster.project}/{leaver.region}"),
    }
    name = f"gke-{leaver.cluster.name[:20].rstrip('-')}-{secrets.token_hex(4)}-pe-subnet"
    leaver.add(leaver.region, "subnetworks", name, document)


_MAKERS: dict[str, Callable[[Leaver], object]] = {
    "address": _address,
    "disk": _disk,
    "endpoint-subnet": _endpoint_subnet,
    "firewall": _firewall,
    "forwarding-rule": _forwarding_rule,
    "health-check": _health_check,
    "network-endpoint-group": _endpoint_group,
    "placement-policy": _placement_policy,
    "target-pool": _target_pool,
}


def _leave(world: World, wish: dict[str, Any]) -> None:
    kinds = wish.get("kinds", [])
    if unknown := sorted(set(kinds) - set(_MAKERS)):
        raise ValueError(f"nothing leaves a {', '.join(unknown)}; there are: {', '.join(_MAKERS)}")
    for cluster in world.state(Gke).clusters.values():
        if cluster.name == wish.get("cluster"):
            leaver = Leaver(world, cluster)
            for kind in kinds:
                _MAKERS[kind](leaver)
            return
    raise ValueError(f"there is no cluster {wish.get('cluster')!r} to leave anything")


setting("leave", read=lambda world: world.state(Leftovers).left, write=_leave)

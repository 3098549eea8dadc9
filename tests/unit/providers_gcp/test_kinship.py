"""The load balancers, disks and rules of a deleted cluster, as opposed to those of others."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud.compute_v1 import types

from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY
from cloudrec.providers.gcp.api import ids, labels
from cloudrec.providers.gcp.cleanup import orphans
from cloudrec.providers.gcp.cleanup.ownership import Kin, Rows

NETWORK = "projects/p/global/networks/cloudrec-t-us-central1"
HERE, EVERYWHERE = "projects/p/regions/us-central1", "projects/p/global"


def row(kind: str, path: str, **fields: Any) -> Any:
    link = f"https://www.googleapis.com/compute/v1/{path}"
    return getattr(types, kind)(name=path.rpartition("/")[2], self_link=link, **fields)


def kin(*found: tuple[str, Any]) -> dict[str, list[str]]:
    rows: dict[str, list[Any]] = {}
    for collection, one in found:
        rows.setdefault(ids.snake(collection), []).append(one)
    of = Kin("cloudrec-t", "t", frozenset({NETWORK}), Rows(**rows))
    told = {collection: [each.name for each in of.found[collection]] for collection in orphans.COLLECTIONS}
    return {collection: names for collection, names in told.items() if names}


def rule(name: str, network: str = NETWORK, description: str = "") -> tuple[str, Any]:
    found = row("Firewall", f"{EVERYWHERE}/firewalls/{name}", network=network, description=description)
    return "firewalls", found


def test_a_load_balancer_of_a_service_is_found_by_the_name_of_its_rule() -> None:
    check = f"{EVERYWHERE}/healthChecks/k8s-0123456789abcdef-node"
    found = kin(
        rule("k8s-fw-a12345"),
        rule("k8s-0123456789abcdef-node-http-hc"),
        ("forwardingRules", row("ForwardingRule", f"{HERE}/forwardingRules/a12345")),
        ("forwardingRules", row("ForwardingRule", f"{HERE}/forwardingRules/a99999")),
        ("targetPools", row("TargetPool", f"{HERE}/targetPools/a12345")),
        ("addresses", row("Address", f"{HERE}/addresses/a12345")),
        ("addresses", row("Address", f"{HERE}/addresses/other")),
        ("healthChecks", row("HealthCheck", check)),
        ("healthChecks", row("HealthCheck", f"{EVERYWHERE}/healthChecks/k8s-ffffffffffffffff-node")),
    )
    assert found == {
        "firewalls": ["k8s-fw-a12345", "k8s-0123456789abcdef-node-http-hc"],
        "forwardingRules": ["a12345"],
        "targetPools": ["a12345"],
        "addresses": ["a12345"],
        "healthChecks": ["k8s-0123456789abcdef-node"],
    }


def test_an_ingress_is_found_from_its_endpoints_to_its_forwarding_rule() -> None:
    name = "k8s1-0123-ns-web-80"
    endpoints = f"projects/p/zones/us-central1-a/networkEndpointGroups/{name}"
    service, of_map = f"{EVERYWHERE}/backendServices/{name}", f"{EVERYWHERE}/urlMaps/k8s2-um"
    proxy = f"{EVERYWHERE}/targetHttpProxies/k8s2-tp"
    found = kin(
        ("networkEndpointGroups", row("NetworkEndpointGroup", endpoints, network=NETWORK)),
        ("backendServices", row("BackendService", service, backends=[types.Backend(group=endpoints)])),
        ("backendServices", row("BackendService", f"{EVERYWHERE}/backendServices/other")),
        ("urlMaps", row("UrlMap", of_map, default_service=service)),
        ("targetHttpProxies", row("TargetHttpProxy", proxy, url_map=of_map)),
        ("forwardingRules", row("ForwardingRule", f"{EVERYWHERE}/forwardingRules/k8s2-fr", target=proxy)),
        ("healthChecks", row("HealthCheck", f"{EVERYWHERE}/healthChecks/{name}")),
    )
    assert {collection: len(names) for collection, names in found.items()} == {
        "networkEndpointGroups": 1,
        "backendServices": 1,
        "urlMaps": 1,
        "targetHttpProxies": 1,
        "forwardingRules": 1,
        "healthChecks": 1,
    }


def test_resources_of_cloudrec_in_the_network_are_not_orphaned() -> None:
    ours = labels.describe({TAG_CLUSTER: "t", TAG_KEY: "firewall/t-internal"})
    assert kin(rule("cloudrec-t-internal", description=ours), rule("gke-cloudrec-t-12345678-all")) == {
        "firewalls": ["gke-cloudrec-t-12345678-all"]
    }


def test_resources_in_another_network_belong_to_others() -> None:
    other = "projects/p/global/networks/default"
    assert kin(rule("k8s-fw-a12345", network=other)) == {}


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"labels": {"goog-k8s-cluster-name": "cloudrec-t"}}, True),
        ({"labels": {"cloudrec-cluster": "t"}}, True),
        ({"labels": {"goog-k8s-cluster-name": "cloudrec-t"}, "users": ["an instance"]}, False),
        ({"labels": {"goog-k8s-cluster-name": "cloudrec-other"}}, False),
        ({}, False),
    ],
)
def test_an_unused_disk_with_the_name_of_the_cluster_is_orphaned(
    fields: dict[str, Any], *, left: bool
) -> None:
    disk = row("Disk", "projects/p/zones/us-central1-a/disks/pvc-1", **fields)
    assert kin(("disks", disk)) == ({"disks": ["pvc-1"]} if left else {})


def test_the_address_of_a_nat_belongs_to_its_router() -> None:
    nat = row("Address", f"{HERE}/addresses/nat-auto-ip-1", purpose="NAT_AUTO", network=NETWORK)
    assert kin(("addresses", nat)) == {}

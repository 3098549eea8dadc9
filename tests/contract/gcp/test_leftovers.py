"""Resources of controllers: `up` keeps them, `down` deletes them; resources of others are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec.engine.graph import Condition
from tests.contract.gcp.support import Site, whole
from tests.sandbox.gcp.support import Gcp as Cloud

ZONES = ("us-central1-a",)
ZONE, REGION = "projects/sandbox-project/zones/us-central1-a", "projects/sandbox-project/regions/us-central1"
EVERYWHERE = "projects/sandbox-project/global"
NETWORK = f"{EVERYWHERE}/networks/cloudrec-t-us-central1"


def make(cloud: Cloud, path: str, **fields: Any) -> None:
    """Create one Compute Engine resource, as a controller does."""
    front, _, name = path.rpartition("/")
    status, told = cloud.rest("POST", f"/compute/v1/{front}", {"name": name, **fields})
    assert status == 200, told
    cloud.advance(60)  # until it exists


def service(cloud: Cloud) -> None:
    """The resources that GKE creates for a Service of type LoadBalancer."""
    make(cloud, f"{EVERYWHERE}/firewalls/k8s-fw-a0123", network=NETWORK, allowed=[{"IPProtocol": "tcp"}])
    make(cloud, f"{REGION}/addresses/a0123")
    make(cloud, f"{REGION}/targetPools/a0123")
    make(cloud, f"{REGION}/forwardingRules/a0123", target=f"{REGION}/targetPools/a0123", portRange="80-80")


def ingress(cloud: Cloud, name: str = "k8s1-0123-ns-web-80") -> None:
    """The resources that GKE creates for an Ingress."""
    endpoints = f"{ZONE}/networkEndpointGroups/{name}"
    make(cloud, endpoints, network=NETWORK, networkEndpointType="GCE_VM_IP_PORT")
    make(cloud, f"{EVERYWHERE}/healthChecks/{name}", type="HTTP")
    make(cloud, f"{EVERYWHERE}/backendServices/{name}", backends=[{"group": endpoints}])
    make(cloud, f"{EVERYWHERE}/urlMaps/k8s2-um", defaultService=f"{EVERYWHERE}/backendServices/{name}")
    make(cloud, f"{EVERYWHERE}/targetHttpProxies/k8s2-tp", urlMap=f"{EVERYWHERE}/urlMaps/k8s2-um")
    make(
        cloud,
        f"{EVERYWHERE}/forwardingRules/k8s2-fr",
        target=f"{EVERYWHERE}/targetHttpProxies/k8s2-tp",
        portRange="80-80",
    )


def claim(cloud: Cloud, of: str = "cloudrec-t", name: str = "pvc-1") -> None:
    """The disk that GKE creates for a PersistentVolumeClaim."""
    make(cloud, f"{ZONE}/disks/{name}", sizeGb="100", labels={"goog-k8s-cluster-name": of})


def remains(site: Site) -> dict[str, float | None]:
    """The orphaned resources that a search finds, with their cost."""
    found = [seen for seen in site.search() if seen.kind == "stray"]
    return {seen.name: seen.hourly_usd for seen in found}


def test_up_keeps_resources_of_controllers_and_down_deletes_them(cloud: Cloud, tmp_path: Path) -> None:
    before = cloud.state()
    site = whole(cloud, tmp_path, zones=ZONES)
    site.up()
    service(cloud)
    ingress(cloud)
    claim(cloud)
    assert remains(site) == {}
    assert site.planned() == {}
    site.down()
    assert cloud.state() == before


def test_the_subnet_of_a_private_endpoint_does_not_outlive_the_cluster(cloud: Cloud, tmp_path: Path) -> None:
    before = cloud.state()
    site = whole(cloud, tmp_path, zones=ZONES, access="private")
    site.up()
    cloud.control(leave={"cluster": "cloudrec-t", "kinds": ["endpoint-subnet"]})
    assert [path for path in cloud.state() if path.endswith("-pe-subnet")]
    site.down()
    assert cloud.state() == before


def test_resources_outside_the_cluster_are_kept(cloud: Cloud, tmp_path: Path) -> None:
    claim(cloud, of="cloudrec-other", name="pvc-2")
    make(cloud, f"{ZONE}/disks/mine", sizeGb="10")
    make(cloud, f"{REGION}/addresses/mine")
    make(cloud, f"{REGION}/targetPools/mine")
    cloud.advance(3600)
    before = cloud.state()
    site = whole(cloud, tmp_path, zones=ZONES)
    site.up()
    service(cloud)
    site.down()
    assert cloud.state() == before


def without_cluster(cloud: Cloud, site: Site) -> None:
    """Delete the cluster and its nodes from outside cloudrec."""
    (seen,) = [seen for seen in site.search() if seen.kind == "cluster"]
    driver = site.drivers["cluster"]
    driver.delete(seen)
    cloud.advance(3600)
    assert driver.condition("cluster", seen.identity)[0] is Condition.GONE


def test_orphaned_resources_of_a_deleted_cluster_are_listed_with_their_cost(
    cloud: Cloud, tmp_path: Path
) -> None:
    site = whole(cloud, tmp_path, zones=ZONES)
    site.up()
    service(cloud)
    claim(cloud)
    without_cluster(cloud, site)
    left = remains(site)
    balancer = ("forwardingRules/a0123", "targetPools/a0123", "addresses/a0123", "firewalls/k8s-fw-a0123")
    assert {f"t/{name}" for name in (*balancer, "disks/pvc-1")} <= left.keys()
    assert left["t/forwardingRules/a0123"] == 0.025
    assert left["t/disks/pvc-1"] == pytest.approx(100 * 0.04 / 730)
    site.down()
    assert remains(site) == {}


def test_a_disk_is_found_after_its_network_is_deleted(cloud: Cloud, tmp_path: Path) -> None:
    claim(cloud)
    cloud.advance(3600)
    site = whole(cloud, tmp_path, zones=ZONES)
    everything = site.drivers["leftovers"].search(None)
    assert [(seen.cluster, seen.kind) for seen in everything] == [("t", "stray")]
    site.down()
    assert remains(site) == {}


def test_an_orphaned_resource_that_cannot_be_deleted_is_named(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, zones=ZONES)
    site.up()
    claim(cloud)
    denied = {"service": "compute", "action": "disks.delete", "kind": "error", "times": 99}
    cloud.control(faults=[{**denied, "code": "forbidden", "status": 403, "message": "no"}])
    with pytest.raises(Exception, match="disks"):
        site.down()
    cloud.control(faults=[])
    site.down()
    assert remains(site) == {}

"""`leaks` and `down` name what others left with cloudrec's labels and names, or in its networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.engine.graph import Observed
from cloudrec.errors import ResourcesRemainError
from cloudrec.home import Home
from cloudrec.providers.base.audit import UNMANAGED
from cloudrec.spec.models import ClusterSpec
from tests.contract.gcp.support import fresh
from tests.contract.gcp.support_audit import APIS, GIB, REMOVED, Planter
from tests.contract.gcp.test_leftovers import claim, ingress, service
from tests.sandbox.gcp.support import PROJECT, REGION
from tests.sandbox.gcp.support import Gcp as Cloud

REGIONS = ("us-central1", "us-east1", "europe-west4")
HOURS = 730
SPEED = 6000.0  # of the stand-in's clock: ten minutes take a tenth of a second
# From the price table; None: the table has no price. What Google does not bill by the hour is 0.
MACHINE = {"us-central1": 0.134023, "us-east1": 0.134023, "europe-west4": 0.147544}
DISK = {"us-central1": 0.1, "us-east1": 0.1, "europe-west4": 0.11}
BALANCER = {"us-central1": 0.025}
FREE = (
    "internal address",
    "subnetwork",
    "VPN gateway",
    "classic VPN gateway",
    "instance group",
    "instance group manager",
    "instance template",
    "resource policy",
    "bucket",
)
UNKNOWN = (
    "regional disk",
    "VPN tunnel",
    "Filestore instance",
    "TPU node",
    "Scheduler job",
    "Memorystore instance",
)


def prices(region: str) -> dict[str, float | None]:
    """The price of each planted kind."""
    return {
        "instance": MACHINE[region],
        "disk": GIB * DISK[region] / HOURS,
        "external address": 0.005,
        "forwarding rule": BALANCER.get(region),
        "router": 0.044,
        "reservation": 2 * MACHINE[region],
        **dict.fromkeys(FREE, 0.0),
        **dict.fromkeys(UNKNOWN),
    }


@pytest.fixture
def application(cloud: Cloud, tmp_path: Path) -> AppContext:
    cloud.control(apis=APIS, speed=SPEED)
    cloud.env["CLOUDREC_SANDBOX_SPEED"] = str(SPEED)
    return AppContext(home=Home(root=tmp_path / "home"), environment=cloud.env)


def found(application: AppContext, **where: Any) -> dict[str, Observed]:
    """What `leaks` names, by identity."""
    return {leak.found.identity: leak.found for leak in app.leaks(application, "gcp", **where).leaks}


def unmanaged(application: AppContext) -> list[str]:
    return [seen.name for seen in found(application).values() if seen.kind == UNMANAGED]


def up(application: AppContext, **given: Any) -> None:
    spec = {
        "name": "t",
        "provider": "gcp",
        "owner": "tester",
        "nodes": 1,
        "zones": ("us-central1-a",),
        **given,
    }
    app.up(application, ClusterSpec.model_validate(spec), decide=lambda _plan: True)


def down(application: AppContext) -> app.Removal | None:
    return app.down(
        application, provider_name="gcp", cluster_name="t", keep_data=False, decide=lambda _removal: True
    )


@pytest.mark.slow
def test_leaks_names_every_planted_resource_of_twenty_kinds_in_three_regions(
    cloud: Cloud, application: AppContext
) -> None:
    planters = [Planter(cloud=cloud, region=region, title="ghost") for region in REGIONS]
    for planter in planters:
        planter.own_network()
        planter.all()
    templates = {planter.planted.pop("instance template"): 0.0 for planter in planters}
    listed = found(application, everywhere=True)
    kinds = [kind for planter in planters for kind in planter.planted]
    named = [path for planter in planters for path in planter.planted.values() if path in listed]
    print(f"{len(named)} of {len(kinds)} named")
    assert (len(set(kinds)), len(kinds), len(set(named))) == (20, 60, 60)
    for planter in planters:
        expected = prices(planter.region)
        for kind, path in planter.planted.items():
            assert listed[path].hourly_usd == pytest.approx(expected[kind]), path
            assert listed[path].location == planter.region, path
            assert listed[path].cluster in {"ghost", ""}, path
    for path, price in templates.items():
        assert listed[path].hourly_usd == price
    # Nothing else is named but cloudrec's own networks.
    others = {seen.kind for path, seen in listed.items() if path not in {*named, *templates}}
    assert others <= {"network", "subnetwork", "leftovers"}


@pytest.mark.slow
def test_global_resources_are_named_once_with_the_price_of_the_region_that_stores_them(
    cloud: Cloud, application: AppContext
) -> None:
    planter = Planter(cloud=cloud, region="europe-west4", title="ghost")
    planter.own_network()
    planter.machines()
    placed = planter.everywhere()
    rows = app.leaks(application, "gcp", locations=REGIONS).leaks
    for kind, path in placed.items():
        (leak,) = [leak for leak in rows if leak.found.identity == path]
        stored = GIB * 1e9 / 2**30 * 0.053 / HOURS if kind == "snapshot" else None
        assert leak.found.hourly_usd == pytest.approx(stored), kind
        assert (leak.found.location, leak.claim) == ("", "")
    assert len(placed) == 4


@pytest.mark.slow
def test_down_names_what_it_does_not_remove_and_removes_the_rest(
    cloud: Cloud, application: AppContext
) -> None:
    up(application)
    planter = Planter(cloud=cloud, region=REGION, title="t")
    planter.network = f"projects/{PROJECT}/global/networks/cloudrec-t-{REGION}"
    planter.subnet = f"projects/{PROJECT}/regions/{REGION}/subnetworks/cloudrec-t"
    planted = {**planter.all(), **planter.everywhere()}
    with pytest.raises(ResourcesRemainError) as told:
        down(application)
    assert told.value.exit_code == 5
    lines = told.value.message.splitlines()
    for kind, path in planted.items():
        named = [line for line in lines if f"  {path}  " in line]
        assert len(named) == (kind not in REMOVED), (kind, path, named)
        ending = path if "/" in path else f":b/{path}"
        exists = [entry for entry in cloud.state() if entry.endswith(ending)]
        assert bool(exists) == (kind not in REMOVED | {"Memorystore instance"}), (kind, path)
    print(told.value.message)
    machine = next(line for line in lines if planted["instance"] in line)
    assert f"${MACHINE[REGION]:.2f}/h" in machine
    assert "remove them with the cloud's own tools" in (told.value.remedy or "")


@pytest.mark.slow
def test_an_orphaned_resource_that_cannot_be_deleted_is_named_once(
    cloud: Cloud, application: AppContext
) -> None:
    up(application)
    claim(cloud)
    denied = {"service": "compute", "action": "disks.delete", "kind": "error", "times": 99}
    cloud.control(faults=[{**denied, "code": "forbidden", "status": 403, "message": "no"}])
    with pytest.raises(ResourcesRemainError) as refused:
        down(application)
    disk = f"projects/{PROJECT}/zones/us-central1-a/disks/pvc-1"
    assert len([line for line in refused.value.message.splitlines() if f"  {disk}  " in line]) == 1


def test_a_healthy_cluster_with_load_balancers_and_volumes_has_no_unmanaged_resources(
    cloud: Cloud, application: AppContext
) -> None:
    up(application)
    service(cloud)
    ingress(cloud)
    claim(cloud)
    assert len(cloud.state("compute:instances:")) > 1
    assert unmanaged(application) == []


@pytest.mark.slow
def test_nothing_is_named_after_the_removal_of_a_cluster(cloud: Cloud, application: AppContext) -> None:
    up(application)
    claim(cloud)
    removal = down(application)
    assert removal is not None
    assert removal.unsearched == ()
    assert found(application) == {}


def test_a_machine_outside_the_pools_of_a_living_cluster_is_named(
    cloud: Cloud, application: AppContext
) -> None:
    up(application)
    planter = Planter(cloud=cloud, region=REGION, title="t")
    planter.subnet = f"projects/{PROJECT}/regions/{REGION}/subnetworks/cloudrec-t"
    planter.machine("instance")
    (seen,) = [seen for seen in found(application).values() if seen.kind == UNMANAGED]
    assert (seen.identity, seen.cluster) == (planter.planted["instance"], "t")
    assert seen.hourly_usd == pytest.approx(MACHINE[REGION], abs=0.001)  # `up` has read the price list


def test_resources_of_others_are_not_named(cloud: Cloud, application: AppContext) -> None:
    planter = Planter(cloud=cloud, region=REGION, title="t")
    planter.labels, planter.own, planter.gke = {"team": "x"}, "theirs", "gke-theirs"
    network = {"name": "theirs", "auto_create_subnetworks": False}
    front = f"projects/{PROJECT}/global/networks"
    planter.network = planter.insert("Networks", "network", "", front.rpartition("/")[0], **network)
    planter.subnet = planter.insert(
        "Subnetworks",
        "subnetwork",
        "",
        planter.front,
        name="theirs",
        network=planter.network,
        ip_cidr_range="10.10.0.0/20",
    )
    planter.all()
    assert found(application) == {}


def test_a_collection_that_cannot_be_listed_is_reported_and_hides_no_other(
    cloud: Cloud, application: AppContext
) -> None:
    planter = Planter(cloud=cloud, region=REGION, title="ghost")
    planter.insert("Addresses", "address", "address", planter.front, labels=planter.labels)
    denied = {"service": "compute", "kind": "error", "code": "forbidden", "status": 403, "times": 99}
    text = "Required 'compute.snapshots.list' permission for 'projects/sandbox-project'"
    cloud.control(faults=[{**denied, "action": "snapshots.list", "message": text}])
    search = app.leaks(application, "gcp")
    assert search.unsearched == (
        "gcp: snapshots: the credentials lack the permission compute.snapshots.list",
    )
    assert planter.planted["address"] in {leak.found.identity for leak in search.leaks}


@pytest.mark.slow
def test_down_reports_what_it_could_not_search(cloud: Cloud, application: AppContext) -> None:
    up(application)
    denied = {"service": "secretmanager", "kind": "error", "code": "PERMISSION_DENIED", "status": 403}
    text = "Permission 'secretmanager.secrets.list' denied on resource (or it may not exist)."
    cloud.control(faults=[{**denied, "action": r"projects\.secrets\.list", "message": text, "times": 99}])
    removal = down(application)
    assert removal is not None
    assert removal.unsearched == (
        "gcp: secrets: the credentials lack the permission secretmanager.secrets.list",
    )


@pytest.mark.slow
def test_an_api_that_is_not_enabled_has_no_resources_and_only_leaks_mentions_the_search_of_assets(
    cloud: Cloud, application: AppContext
) -> None:
    fresh(cloud)
    up(application)
    (text,) = app.leaks(application, "gcp").unsearched
    assert "has not enabled cloudasset.googleapis.com" in text
    removal = down(application)
    assert removal is not None
    assert removal.unsearched == ()


def test_every_region_of_the_project_can_be_searched(application: AppContext) -> None:
    provider = application.provider("gcp")
    assert set(REGIONS) <= set(provider.regions())  # type: ignore[attr-defined]

"""Google Cloud itself keeps a cluster's end: without a guard, without an image, without a running client."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudrec.providers.gcp.cleanup import unmanaged
from cloudrec.providers.gcp.nodes import end_jobs, end_schedule
from tests.contract.gcp.support import SPEED, Site, fresh, whole
from tests.contract.gcp.test_cluster_side import none_left
from tests.sandbox.gcp.support import PROJECT, REGION
from tests.sandbox.gcp.support import Gcp as Cloud

SCHEDULE = "end-schedule/t"
JOBS = f"/v1/projects/{PROJECT}/locations/{REGION}/jobs"
DAY = timedelta(days=1)


@pytest.fixture
def cloud(process: Cloud) -> Iterator[Cloud]:
    """A project without Cloud Scheduler's API, where calls need permissions; the ends are virtual times."""
    fresh(process, enforce_iam=True)
    process.control(real_times=False)
    yield process
    process.control(real_times=True)


def now(cloud: Cloud) -> datetime:
    return datetime.fromtimestamp(cloud.control()["virtual_time"], UTC)


def moment(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def later(cloud: Cloud, by: timedelta = DAY) -> str:
    return moment(now(cloud) + by)


def with_end(cloud: Cloud, folder: Path, expires: str, **given: Any) -> Site:
    return whole(cloud, folder, expires=expires, capacity="spot-first", zones=("us-central1-a",), **given)


def pass_end(cloud: Cloud, expires: str, minutes: float = 5) -> None:
    """Let time pass until some minutes after the end; a resize takes two minutes, as at Google."""
    cloud.control(speed=0.001, durations={"gke-pool-resize": 120, "gke-pool-deletion": 150})
    left = datetime.fromisoformat(expires) + timedelta(minutes=minutes) - now(cloud)
    assert left > timedelta(minutes=minutes)
    cloud.advance(left.total_seconds())


def run_on(cloud: Cloud) -> None:
    """Let the clock run fast again."""
    cloud.control(speed=SPEED, durations={"*": 5})


def machines(cloud: Cloud, kind: str) -> int:
    """The machines of the GPU pools or of the CPU pool."""
    return len([entry for entry in cloud.state("compute:instances:") if f"-{kind}-" in entry])


def jobs(cloud: Cloud) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cloud.rest("GET", JOBS)[1].get("jobs", [])
    return found


def test_the_end_comes_without_guard_and_client(cloud: Cloud, tmp_path: Path) -> None:
    expires = later(cloud)
    site = with_end(cloud, tmp_path, expires)
    site.up()
    assert (machines(cloud, "gpu"), machines(cloud, "cpu") > 0) == (1, True)
    pass_end(cloud, expires)
    assert (machines(cloud, "gpu"), machines(cloud, "cpu") > 0) == (0, True)


def test_the_end_comes_although_gke_is_busy(cloud: Cloud, tmp_path: Path) -> None:
    expires = later(cloud)
    site = with_end(cloud, tmp_path, expires)
    site.up()
    pass_end(cloud, expires, minutes=-1)
    name = site.layout().cluster_path.rpartition("/")[2]
    cloud.control(durations={"gke-upgrade": 600}, gke_upgrade={"cluster": name})
    cloud.advance(360)
    assert machines(cloud, "gpu") == 1
    assert {job["status"].get("code") for job in jobs(cloud)} >= {9}
    cloud.advance(600)
    assert machines(cloud, "gpu") == 0


def test_each_candidate_has_a_job_before_the_first_gpu_pool(cloud: Cloud, tmp_path: Path) -> None:
    expires = later(cloud)
    site = with_end(cloud, tmp_path, expires)
    site.up()
    calls = [call["action"] for call in cloud.changing()]
    last = max(number for number, action in enumerate(calls) if action.endswith("jobs.create"))
    assert last < calls.index("CreateNodePool")
    pools = {end_schedule.pool_of(way) for way in site.layout().places()}
    uris = {job["httpTarget"]["uri"] for job in jobs(cloud)}
    path = f"https://container.googleapis.com/v1/{site.layout().cluster_path}/nodePools"
    assert uris == {f"{path}/{pool}:setSize" for pool in pools}
    assert len(pools) > 1
    assert {job["schedule"] for job in jobs(cloud)} == {end_jobs.cron(expires)}


def test_a_second_up_changes_nothing_and_another_machine_finds_the_jobs(cloud: Cloud, tmp_path: Path) -> None:
    expires = later(cloud)
    with_end(cloud, tmp_path / "one", expires).up()
    for folder in ("one", "two"):
        again = with_end(cloud, tmp_path / folder, expires)
        assert not again.planned()
        assert again.found()[SCHEDULE].properties["expires"] == expires


def test_another_end_moves_the_jobs_in_place(cloud: Cloud, tmp_path: Path) -> None:
    first = later(cloud)
    with_end(cloud, tmp_path, first).up()
    before = {job["name"] for job in jobs(cloud)}
    second = moment(datetime.fromisoformat(first) + DAY)
    site, since = with_end(cloud, tmp_path, second), len(cloud.ask("GET", "/calls"))
    assert SCHEDULE in site.planned()
    site.up()
    assert {job["name"] for job in jobs(cloud)} == before
    made = [action for action in site.changes(since) if action.startswith("cloudscheduler")]
    assert set(made) == {"cloudscheduler:projects.locations.jobs.patch"}
    assert not site.planned()
    pass_end(cloud, first)
    assert machines(cloud, "gpu") == 1
    pass_end(cloud, second)
    assert machines(cloud, "gpu") == 0


def test_an_end_is_added_to_a_cluster_without_one(cloud: Cloud, tmp_path: Path) -> None:
    whole(cloud, tmp_path, capacity="spot-first", zones=("us-central1-a",)).up()
    assert not cloud.state("cloudscheduler")
    expires = later(cloud)
    site = with_end(cloud, tmp_path, expires)
    site.up()
    assert not site.planned()
    pass_end(cloud, expires)
    assert machines(cloud, "gpu") == 0


def test_a_cluster_that_has_ended_gets_new_jobs_with_a_new_end(cloud: Cloud, tmp_path: Path) -> None:
    """The repetitions of the old calls must not end the new nodes."""
    first = later(cloud)
    with_end(cloud, tmp_path, first).up()
    pass_end(cloud, first)
    assert machines(cloud, "gpu") == 0
    run_on(cloud)
    second = later(cloud)
    site = with_end(cloud, tmp_path, second)
    site.up()
    assert not site.planned()
    cloud.advance(3 * 3600)
    assert machines(cloud, "gpu") == 1
    pass_end(cloud, second)
    assert machines(cloud, "gpu") == 0


def test_a_paused_changed_or_deleted_job_is_repaired(cloud: Cloud, tmp_path: Path) -> None:
    expires = later(cloud)
    site = with_end(cloud, tmp_path, expires)
    site.up()
    names = sorted(job["name"] for job in jobs(cloud))
    assert cloud.rest("POST", f"/v1/{names[0]}:pause", {})[0] == 200
    assert SCHEDULE in site.planned()
    site.up()
    assert cloud.rest("DELETE", f"/v1/{names[0]}")[0] == 200
    wish = {"schedule": "0 0 1 1 *"}
    assert cloud.rest("PATCH", f"/v1/{names[1]}?updateMask=schedule", wish)[0] == 200
    assert SCHEDULE in site.planned()
    site.up()
    assert not site.planned()
    assert sorted(job["name"] for job in jobs(cloud)) == names
    assert {job["state"] for job in jobs(cloud)} == {"ENABLED"}


def test_a_job_of_an_earlier_candidate_stays_and_moves_too(cloud: Cloud, tmp_path: Path) -> None:
    with_end(cloud, tmp_path, later(cloud), instance_types=("a2-highgpu-8g", "a2-ultragpu-8g")).up()
    before = {job["name"] for job in jobs(cloud)}
    site = with_end(cloud, tmp_path, later(cloud, 2 * DAY), instance_types=("a2-highgpu-8g",))
    site.up()
    assert {job["name"] for job in jobs(cloud)} == before
    assert len({job["schedule"] for job in jobs(cloud)}) == 1
    assert not site.planned()


def test_a_pool_of_flex_start_is_deleted_at_the_end(cloud: Cloud, tmp_path: Path) -> None:
    """Its autoscaler would make the nodes again."""
    expires = later(cloud)
    cloud.control(capacity=none_left("us-central1-a/spot", "us-central1-a/on-demand"))
    site = with_end(
        cloud, tmp_path, expires, instance_types=("a2-highgpu-8g",), settings={"flex_start": True}
    )
    site.up()
    cloud.advance(600)
    path = site.layout().cluster_path
    there = {pool.name for pool in cloud.gke.list_node_pools(parent=path).node_pools}
    assert there == {"cpu", "gpu-a2-highgpu-8g-a-flex"}
    pass_end(cloud, expires)
    assert [pool.name for pool in cloud.gke.list_node_pools(parent=path).node_pools] == ["cpu"]
    assert machines(cloud, "gpu") == 0


def test_down_leaves_nothing_and_the_jobs_are_no_leak(cloud: Cloud, tmp_path: Path) -> None:
    empty = set(cloud.state())
    site = with_end(cloud, tmp_path, later(cloud))
    site.up()
    seen = site.search()
    assert not unmanaged.audit(site.gcp, None, seen).found
    own = [entry for entry in cloud.state() if entry.startswith(("cloudscheduler:", "iam:"))]
    assert len([entry for entry in own if entry.startswith("iam:")]) == 2
    with_end(cloud, tmp_path / "other", later(cloud)).down()
    left = set(cloud.state()) - empty
    assert not left
    policy = cloud.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", {})[1]
    assert "cloudrec end" not in str(policy)


def test_a_region_without_cloud_scheduler_uses_another_one(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(scheduler_regions=["europe-west1", "us-east4", "us-east1"])
    expires = later(cloud)
    site = with_end(cloud, tmp_path, expires)
    site.up()
    assert not with_end(cloud, tmp_path / "other", expires).planned()
    assert {entry.split("/")[3] for entry in cloud.state("cloudscheduler:")} == {"us-east1"}
    assert not [
        what for what in unmanaged.audit(site.gcp, "t", site.search()).unsearched if "Scheduler" in what
    ]
    pass_end(cloud, expires)
    assert machines(cloud, "gpu") == 0
    run_on(cloud)
    with_end(cloud, tmp_path / "third", expires).down()
    assert not cloud.state("cloudscheduler")


def test_a_prepared_account_is_used_and_stays(cloud: Cloud, tmp_path: Path) -> None:
    accounts = f"/v1/projects/{PROJECT}/serviceAccounts"
    assert cloud.rest("POST", accounts, {"accountId": "cloudrec-end"})[0] == 200
    cloud.advance(60)
    email = f"cloudrec-end@{PROJECT}.iam.gserviceaccount.com"
    expires = later(cloud)
    site = with_end(cloud, tmp_path, expires)
    site.up()
    assert {job["httpTarget"]["oauthToken"]["serviceAccountEmail"] for job in jobs(cloud)} == {email}
    pass_end(cloud, expires)
    assert machines(cloud, "gpu") == 0
    run_on(cloud)
    site.down()
    assert cloud.rest("GET", f"{accounts}/{email}")[0] == 200


@pytest.mark.parametrize(
    ("expires", "schedule"),
    [
        ("2027-03-01T10:00:00Z", "0 10 1 3 *"),
        ("2027-03-01T10:00:01Z", "1 10 1 3 *"),
        ("2027-12-31T23:59:30Z", "0 0 1 1 *"),
        ("2027-03-01T00:30:00+02:00", "30 22 28 2 *"),
    ],
)
def test_the_schedule_is_the_first_minute_at_or_after_the_end(expires: str, schedule: str) -> None:
    assert end_jobs.cron(expires) == schedule


@pytest.mark.parametrize(
    ("region", "offered", "chosen"),
    [
        ("us-east5", ("us-east5", "asia-east1"), "us-east5"),
        ("us-east5", ("us-west1", "asia-east1", "us-east4"), "us-east4"),
        ("me-west1", ("us-west1", "europe-west1"), "europe-west1"),
    ],
)
def test_the_location_of_the_jobs_is_always_the_same(
    region: str, offered: tuple[str, ...], chosen: str
) -> None:
    assert end_jobs.location(region, offered) == chosen
    assert end_jobs.location(region, offered[::-1]) == chosen

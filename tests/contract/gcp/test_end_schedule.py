"""Google Cloud itself keeps a cluster's end: no guard, no image of ours and no running client is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudrec.providers.gcp.nodes import end_schedule
from tests.contract.gcp.support import Site, fresh, whole
from tests.sandbox.gcp.support import PROJECT, REGION
from tests.sandbox.gcp.support import Gcp as Cloud

SCHEDULE = "end-schedule/t"
JOBS = f"/v1/projects/{PROJECT}/locations/{REGION}/jobs"
DAY = timedelta(days=1)
HOST = "cloudscheduler.googleapis.com"


@pytest.fixture
def cloud(process: Cloud) -> Cloud:
    """A project without Cloud Scheduler's API, where calls need permissions."""
    fresh(process, enforce_iam=True)
    return process


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

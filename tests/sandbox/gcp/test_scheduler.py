"""Cloud Scheduler's jobs: what is refused, when they are due, and their calls as a service account."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.sandbox.gcp.support import PROJECT, REGION, Gcp
from tests.sandbox.gcp.support_gke import PARENT, PATH, STEP_S, done, pool, ready, resize
from tests.sandbox.gcp.test_gke_permissions import grant

HOST = "cloudscheduler.googleapis.com"
FOLDER = f"projects/{PROJECT}/locations/{REGION}/jobs"
JOBS = f"/v1/{FOLDER}"
NAME = "ender-of-one"
ACCOUNT = f"{NAME}@{PROJECT}.iam.gserviceaccount.com"
URI = f"https://container.googleapis.com/v1/{PATH}/nodePools/gpu:setSize"
ZERO = base64.b64encode(b'{"nodeCount":0}').decode()
OFTEN = {
    "retryCount": 5,
    "minBackoffDuration": "10s",
    "maxBackoffDuration": "30s",
    "maxRetryDuration": "7200s",
}


@pytest.fixture
def cloud(gcp: Gcp) -> Iterator[Gcp]:
    gcp.control(apis={HOST: True}, real_times=False)
    account(gcp)
    yield gcp
    gcp.control(real_times=True)


def account(gcp: Gcp) -> None:
    assert gcp.rest("POST", f"/v1/projects/{PROJECT}/serviceAccounts", {"accountId": NAME})[0] == 200
    gcp.advance(60)


def target(**more: Any) -> dict[str, Any]:
    body = {"uri": URI, "httpMethod": "POST", "body": ZERO, "oauthToken": {"serviceAccountEmail": ACCOUNT}}
    return {**body, **more}


def job(name: str = "end", **more: Any) -> dict[str, Any]:
    wish = {
        "name": f"{FOLDER}/{name}",
        "schedule": "30 12 24 11 *",
        "timeZone": "Etc/UTC",
        "httpTarget": target(),
    }
    return {**wish, **more}


def now(gcp: Gcp) -> datetime:
    return datetime.fromtimestamp(gcp.control()["virtual_time"], UTC)


def cron(moment: datetime) -> str:
    return f"{moment.minute} {moment.hour} {moment.day} {moment.month} *"


def read(gcp: Gcp, name: str = "end") -> dict[str, Any]:
    found: dict[str, Any] = gcp.rest("GET", f"{JOBS}/{name}")[1]
    return found


def nodes(gcp: Gcp) -> int:
    return len([entry for entry in gcp.state("compute:instances:") if "-gpu-" in entry])


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (job(schedule=""), "Schedule or time zone"),
        (job(schedule="61 * * * *"), "Schedule or time zone"),
        (job(schedule="* * * *"), "Schedule or time zone"),
        (job(schedule="0 0 31 2 *"), "Schedule or time zone"),
        (job(timeZone="Mars/Base"), "Schedule or time zone"),
        (job(description="x" * 501), "500 characters"),
        (job(httpTarget={}), "exactly one of the targets"),
        (job(labels={"a": "b"}), "labels"),
        ({**job(), "name": "j"}, "Job name must be formatted"),
        (job(retryConfig={"retryCount": 6}), "[0, 5]"),
        (job(retryConfig={"minBackoffDuration": "60s", "maxBackoffDuration": "5s"}), "backoff"),
        (job(retryConfig={"maxRetryDuration": "soon"}), "not a duration"),
        (job(attemptDeadline="5s"), "15 seconds"),
        (job(attemptDeadline="1801s"), "15 seconds"),
        (job(httpTarget=target(uri="ftp://x.googleapis.com")), "http://"),
        (job(httpTarget=target(uri=URI.replace("https", "http"))), "OAuth token"),
        (job(httpTarget=target(uri="https://example.com/")), "OAuth token"),
        (job(httpTarget=target(httpMethod="GET")), "body"),
        (job(httpTarget=target(httpMethod="GO")), "http_method"),
        (job(httpTarget=target(body="{}")), "base64"),
        (job(httpTarget=target(oidcToken={"serviceAccountEmail": ACCOUNT})), "Only one"),
    ],
)
def test_an_invalid_job_is_refused(cloud: Gcp, wish: dict[str, Any], said: str) -> None:
    status, told = cloud.rest("POST", JOBS, wish)
    assert (status, told["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert said in told["error"]["message"]
    assert not cloud.state("cloudscheduler")


def test_a_name_is_used_once_and_only_in_a_location_of_the_service(cloud: Gcp) -> None:
    assert cloud.rest("POST", JOBS, job())[0] == 200
    assert cloud.rest("POST", JOBS, job())[1]["error"]["status"] == "ALREADY_EXISTS"
    assert [each["name"] for each in cloud.rest("GET", JOBS)[1]["jobs"]] == [f"{FOLDER}/end"]
    cloud.control(scheduler_regions=["us-east1"])
    assert cloud.rest("POST", JOBS, job("other"))[0] == 400
    listed = cloud.rest("GET", f"/v1/projects/{PROJECT}/locations")[1]["locations"]
    assert [each["locationId"] for each in listed] == ["us-east1"]


def test_a_job_needs_the_api_and_an_existing_account(gcp: Gcp) -> None:
    assert gcp.rest("POST", JOBS, job())[1]["error"]["details"][0]["reason"] == "SERVICE_DISABLED"
    gcp.control(apis={HOST: True})
    status, told = gcp.rest("POST", JOBS, job())
    assert (status, ACCOUNT in told["error"]["message"]) == (403, True)


def test_a_job_needs_act_as_on_its_account(cloud: Gcp) -> None:
    grant(cloud, "cloudscheduler.jobs.create", "cloudscheduler.jobs.get")
    status, told = cloud.rest("POST", JOBS, job())
    assert (status, "iam.serviceAccounts.actAs" in told["error"]["message"]) == (403, True)
    user = {
        "role": "roles/iam.serviceAccountUser",
        "members": [f"serviceAccount:deployer@{PROJECT}.iam.gserviceaccount.com"],
    }
    cloud.control(enforce_iam=False)
    accounts = f"/v1/projects/{PROJECT}/serviceAccounts"
    assert (
        cloud.rest("POST", f"{accounts}/{ACCOUNT}:setIamPolicy", {"policy": {"bindings": [user]}})[0] == 200
    )
    cloud.advance(600)
    cloud.control(enforce_iam=True)
    assert cloud.rest("POST", JOBS, job())[0] == 200


def test_a_change_moves_the_next_time_and_refuses_what_a_creation_refuses(cloud: Gcp) -> None:
    begun = now(cloud)
    first, second = begun + timedelta(hours=2), begun + timedelta(hours=5)
    assert cloud.rest("POST", JOBS, job(schedule=cron(first)))[0] == 200
    assert read(cloud)["scheduleTime"].startswith(f"{first:%Y-%m-%dT%H:%M}:00")
    url = f"{JOBS}/end?updateMask=schedule"
    assert cloud.rest("PATCH", url, {"schedule": "no"})[0] == 400
    assert cloud.rest("PATCH", f"{JOBS}/end?updateMask=state", {"state": "PAUSED"})[0] == 400
    assert cloud.rest("PATCH", f"{JOBS}/none?updateMask=schedule", {"schedule": "* * * * *"})[0] == 404
    assert cloud.rest("PATCH", url, {"schedule": cron(second)})[0] == 200
    cloud.advance(3 * 3600)
    assert "lastAttemptTime" not in read(cloud)
    cloud.advance(3 * 3600)
    assert read(cloud)["lastAttemptTime"].startswith(f"{second:%Y-%m-%dT%H:%M}:00")
    assert read(cloud)["scheduleTime"].startswith(f"{second.year + 1}")
    assert cloud.rest("DELETE", f"{JOBS}/end")[0] == 200
    assert cloud.rest("GET", f"{JOBS}/end")[0] == 404


def test_a_paused_job_makes_no_call(cloud: Gcp) -> None:
    due = now(cloud) + timedelta(hours=1)
    assert cloud.rest("POST", JOBS, job(schedule=cron(due)))[0] == 200
    assert cloud.rest("POST", f"{JOBS}/end:pause", {})[1]["state"] == "PAUSED"
    cloud.advance(2 * 3600)
    assert "lastAttemptTime" not in read(cloud)
    assert cloud.rest("POST", f"{JOBS}/end:resume", {})[1]["state"] == "ENABLED"


def grown(gcp: Gcp) -> None:
    """A cluster with a GPU pool of two nodes."""
    ready(gcp)
    gcp.gke.create_node_pool(parent=PATH, node_pool=pool())
    gcp.advance(STEP_S)
    done(gcp, resize(gcp, f"{PATH}/nodePools/gpu", 2))
    assert nodes(gcp) == 2


def test_a_job_resizes_a_pool_only_with_the_permissions_of_its_account(cloud: Gcp) -> None:
    grown(cloud)
    due = now(cloud) + timedelta(minutes=10)
    wish = job(schedule=cron(due), retryConfig={**OFTEN, "maxRetryDuration": "3600s"})
    assert cloud.rest("POST", JOBS, wish)[0] == 200
    cloud.control(enforce_iam=True)
    cloud.advance(1200)
    assert (read(cloud)["status"]["code"], nodes(cloud)) == (7, 2)
    grant_role(cloud, f'resource.name.startsWith("{PATH}")')
    cloud.advance(600)
    assert nodes(cloud) == 0
    assert read(cloud)["status"] == {}


def grant_role(gcp: Gcp, expression: str) -> None:
    """Let the job's account change clusters, under a condition."""
    options = {"options": {"requestedPolicyVersion": 3}}
    policy = gcp.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", options)[1]
    condition = {"title": "end", "expression": expression}
    member = f"serviceAccount:{ACCOUNT}"
    policy["bindings"].append(
        {"role": "roles/container.clusterAdmin", "members": [member], "condition": condition}
    )
    policy["version"] = 3
    assert gcp.rest("POST", f"/v3/projects/{PROJECT}:setIamPolicy", {"policy": policy})[0] == 200


@pytest.mark.parametrize(("retries", "left"), [(OFTEN, 0), ({"retryCount": 0}, 2)])
def test_a_refused_call_is_repeated_as_the_job_says(cloud: Gcp, retries: dict[str, Any], left: int) -> None:
    grown(cloud)
    due = now(cloud) + timedelta(minutes=10)
    assert cloud.rest("POST", JOBS, job(schedule=cron(due), retryConfig=retries))[0] == 200
    cloud.gke.create_node_pool(parent=PATH, node_pool=pool("other", 0))
    cloud.control(durations={"gke-pool": 1500})
    cloud.advance(300)
    cloud.gke.create_node_pool(parent=PATH, node_pool=pool("third", 0))
    cloud.advance(600)
    assert (read(cloud)["status"]["code"], nodes(cloud)) == (9, 2)
    cloud.advance(3600)
    assert nodes(cloud) == left


def test_a_job_deletes_a_pool(cloud: Gcp) -> None:
    grown(cloud)
    due = now(cloud) + timedelta(minutes=10)
    delete = {"uri": URI.removesuffix(":setSize"), "httpMethod": "DELETE"}
    wish = job(schedule=cron(due), httpTarget={**delete, "oauthToken": {"serviceAccountEmail": ACCOUNT}})
    assert cloud.rest("POST", JOBS, wish)[0] == 200
    cloud.advance(1800)
    assert [each.name for each in cloud.gke.list_node_pools(parent=PATH).node_pools] == ["cpu"]
    assert PARENT in PATH

"""The end of a budget on Google Cloud: a workflow reads it in a label of the cluster, each minute."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudrec.app.money.lifetime import kept_end
from cloudrec.errors import PreflightError
from cloudrec.providers.base.prices import HOURS_A_MONTH
from cloudrec.providers.gcp import preflight, prices
from cloudrec.providers.gcp.api import labels
from cloudrec.providers.gcp.cleanup import unmanaged
from cloudrec.providers.gcp.nodes import end_label, end_workflow
from cloudrec.providers.gcp.nodes.end_jobs import DELETE, RESIZE
from cloudrec.providers.gcp.nodes.end_workflow import Program
from cloudrec_sandbox.gcp.services.workflows import programs
from cloudrec_sandbox.gcp.services.workflows.interpreter import Interpreter
from tests.contract.gcp.support import Site, fresh
from tests.contract.gcp.test_cluster_side import none_left
from tests.contract.gcp.test_end_schedule import (
    SCHEDULE,
    jobs,
    later,
    machines,
    moment,
    pass_end,
    run_on,
    with_end,
)
from tests.sandbox.gcp.support import PROJECT, REGION
from tests.sandbox.gcp.support import Gcp as Cloud

PARENT = f"/v1/projects/{PROJECT}/locations/{REGION}"
LABEL = "cloudrec-expires"
ROLE = Path(__file__).parents[3] / "infra" / "gcp" / "end-role.yaml"
HOUR = timedelta(hours=1)
SOON = 4 * HOUR  # a day has 1,440 executions


@pytest.fixture
def cloud(process: Cloud) -> Iterator[Cloud]:
    """A project without the APIs, where calls need permissions; the ends are virtual times."""
    fresh(process, enforce_iam=True)
    process.control(real_times=False)
    yield process
    process.control(real_times=True)


def with_budget(cloud: Cloud, folder: Path, expires: str, **given: Any) -> Site:
    return with_end(cloud, folder, expires, **{"budget_usd": 5000.0, **given})


def soon(cloud: Cloud, by: timedelta = SOON) -> str:
    return later(cloud, by)


def workflows(cloud: Cloud) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cloud.rest("GET", f"{PARENT}/workflows")[1].get("workflows", [])
    return found


def relabel(cloud: Cloud, site: Site, **wanted: str | None) -> None:
    """Change labels of the cluster as others could; None removes one."""
    cloud.control(enforce_iam=False)
    path = site.layout().cluster_path
    row = cloud.gke.get_cluster(name=path)
    changed = {**row.resource_labels, **{name.replace("_", "-"): text for name, text in wanted.items()}}
    kept = {name: text for name, text in changed.items() if text is not None}
    wish = {"name": path, "resource_labels": kept, "label_fingerprint": row.label_fingerprint}
    cloud.gke.set_labels(request=wish)
    cloud.advance(120)
    cloud.control(enforce_iam=True)


def move(cloud: Cloud, site: Site, expires: str) -> None:
    end_label.move(site.gcp, site.title, expires, cluster=site.layout().cluster_path)
    cloud.advance(120)
    assert end_in_label(cloud, site) == expires


def end_in_label(cloud: Cloud, site: Site) -> str:
    found = cloud.gke.get_cluster(name=site.layout().cluster_path).resource_labels[LABEL]
    return labels.decode({LABEL: found})[LABEL]


def test_the_end_comes_without_guard_and_client(cloud: Cloud, tmp_path: Path) -> None:
    expires = soon(cloud)
    with_budget(cloud, tmp_path, expires).up()
    assert (machines(cloud, "gpu"), machines(cloud, "cpu") > 0) == (1, True)
    pass_end(cloud, expires, minutes=-2)
    assert machines(cloud, "gpu") == 1
    cloud.advance(7 * 60)
    assert (machines(cloud, "gpu"), machines(cloud, "cpu") > 0) == (0, True)


def test_the_workflow_and_its_job_exist_before_the_first_gpu_pool(cloud: Cloud, tmp_path: Path) -> None:
    site = with_budget(cloud, tmp_path, soon(cloud))
    site.up()
    calls = [call["action"] for call in cloud.changing()]
    assert calls.index("projects.locations.workflows.create") < calls.index("projects.locations.jobs.create")
    assert calls.index("projects.locations.jobs.create") < calls.index("CreateNodePool")
    (workflow,), (job,) = workflows(cloud), jobs(cloud)
    assert workflow["serviceAccount"].endswith(f"/{site.layout().end_account}")
    assert job["httpTarget"]["uri"].endswith(f"/v1/{workflow['name']}/executions")
    assert job["schedule"] == "* * * * *"


@pytest.mark.parametrize("by", [3 * HOUR, -3 * HOUR])
def test_the_label_moves_the_end(cloud: Cloud, tmp_path: Path, by: timedelta) -> None:
    first = soon(cloud)
    site = with_budget(cloud, tmp_path, first)
    site.up()
    second = moment(datetime.fromisoformat(first) + by)
    move(cloud, site, second)
    pass_end(cloud, min(first, second), minutes=-2)
    assert machines(cloud, "gpu") == 1
    cloud.advance(7 * 60)
    assert machines(cloud, "gpu") == (1 if first < second else 0)
    if first < second:
        pass_end(cloud, second)
        assert machines(cloud, "gpu") == 0


@pytest.mark.parametrize(
    "text", [None, "", "soon", "20261399t999999z", "2026-12-01", "20991231t235959", "20991231t235959z0"]
)
def test_without_a_valid_label_the_end_of_the_last_up_counts(
    cloud: Cloud, tmp_path: Path, text: str | None
) -> None:
    expires = soon(cloud)
    site = with_budget(cloud, tmp_path, expires)
    site.up()
    relabel(cloud, site, cloudrec_expires=text)
    assert kept_end(site.search()) == expires
    pass_end(cloud, expires, minutes=-2)
    assert machines(cloud, "gpu") == 1
    cloud.advance(7 * 60)
    assert machines(cloud, "gpu") == 0


@pytest.mark.parametrize(("times", "left"), [(3, 1), (1000, 0)])
def test_some_failed_reads_do_not_end_the_nodes_but_minutes_of_them_do(
    cloud: Cloud, tmp_path: Path, times: int, left: int
) -> None:
    first = soon(cloud)
    site = with_budget(cloud, tmp_path, first)
    site.up()
    move(cloud, site, moment(datetime.fromisoformat(first) + SOON))
    pass_end(cloud, first)
    assert machines(cloud, "gpu") == 1
    cloud.control(workflow_faults=[{"method": "GET", "times": times, "status": 500}])
    cloud.advance(120)
    assert machines(cloud, "gpu") == 1
    cloud.advance(8 * 60)
    assert machines(cloud, "gpu") == left


def test_a_refused_call_is_repeated_by_the_next_minute(cloud: Cloud, tmp_path: Path) -> None:
    expires = soon(cloud)
    site = with_budget(cloud, tmp_path, expires)
    site.up()
    pass_end(cloud, expires, minutes=-1)
    name = site.layout().cluster_path.rpartition("/")[2]
    cloud.control(durations={"gke-upgrade": 600}, gke_upgrade={"cluster": name})
    cloud.advance(360)
    assert machines(cloud, "gpu") == 1
    cloud.advance(600)
    assert machines(cloud, "gpu") == 0


def test_a_label_moves_the_end_at_most_to_that_of_the_ttl(cloud: Cloud, tmp_path: Path) -> None:
    limit = soon(cloud, 2 * SOON)
    site = with_budget(cloud, tmp_path, soon(cloud), ttl="2d", end_limit=limit)
    site.up()
    assert not site.planned()
    relabel(cloud, site, cloudrec_expires="20991231t235959z")
    assert site.found()[SCHEDULE].properties["expires"] == limit
    pass_end(cloud, limit)
    assert machines(cloud, "gpu") == 0


def test_a_moved_end_is_known_and_no_change(cloud: Cloud, tmp_path: Path) -> None:
    first = soon(cloud)
    site = with_budget(cloud, tmp_path, first)
    site.up()
    second = moment(datetime.fromisoformat(first) + SOON)
    move(cloud, site, second)
    assert kept_end(site.search()) == second
    for folder in (tmp_path, tmp_path / "other"):
        assert not with_budget(cloud, folder, second).planned()
    third = moment(datetime.fromisoformat(first) + 2 * SOON)
    again, before = with_budget(cloud, tmp_path, third), workflows(cloud)
    assert SCHEDULE in again.planned()
    again.up()
    assert not again.planned()
    assert kept_end(again.search()) == third == end_in_label(cloud, site)
    (after,) = workflows(cloud)
    assert after["name"] != before[0]["name"]
    program = Program.of(after["sourceContents"])
    assert program is not None
    assert end_workflow.written(program.expires) == third


def test_nodes_after_the_end_stay_with_a_new_end(cloud: Cloud, tmp_path: Path) -> None:
    first = soon(cloud)
    with_budget(cloud, tmp_path, first).up()
    pass_end(cloud, first)
    assert machines(cloud, "gpu") == 0
    run_on(cloud)
    second = soon(cloud)
    site = with_budget(cloud, tmp_path, second)
    site.up()
    assert not site.planned()
    cloud.advance(3 * 3600)
    assert machines(cloud, "gpu") == 1


def test_a_budget_replaces_the_jobs_by_a_workflow_and_its_end_brings_them_back(
    cloud: Cloud, tmp_path: Path
) -> None:
    expires = soon(cloud)
    fixed = with_end(cloud, tmp_path, expires)
    fixed.up()
    pools = {job["name"] for job in jobs(cloud)}
    moving = with_budget(cloud, tmp_path, expires)
    assert moving.planned()
    moving.up()
    assert not moving.planned()
    assert (len(jobs(cloud)), len(workflows(cloud))) == (1, 1)
    program = Program.of(workflows(cloud)[0]["sourceContents"])
    assert program is not None
    assert len(program.pools) == len(pools)
    fixed = with_end(cloud, tmp_path, expires)
    fixed.up()
    assert not fixed.planned()
    assert ({job["name"] for job in jobs(cloud)}, workflows(cloud)) == (pools, [])


def test_what_others_changed_is_repaired(cloud: Cloud, tmp_path: Path) -> None:
    expires = soon(cloud)
    site = with_budget(cloud, tmp_path, expires)
    site.up()
    (workflow,), (job,) = workflows(cloud), jobs(cloud)
    idle = json.dumps({"main": {"steps": [{"a": {"return": 1}}]}})
    for method, path, body in (
        ("POST", f"/v1/{job['name']}:pause", {}),
        ("DELETE", f"/v1/{job['name']}", None),
        ("PATCH", f"/v1/{job['name']}?updateMask=schedule", {"schedule": "0 0 1 1 *"}),
        ("DELETE", f"/v1/{workflow['name']}", None),
        ("PATCH", f"/v1/{workflow['name']}?updateMask=sourceContents", {"sourceContents": idle}),
    ):
        assert cloud.rest(method, path, body)[0] == 200
        cloud.advance(60)
        assert SCHEDULE in site.planned(), path
        site.up()
        assert not site.planned()
        assert [each["sourceContents"] for each in workflows(cloud)] == [workflow["sourceContents"]]
        assert [each["state"] for each in jobs(cloud)] == ["ENABLED"]


def test_a_pool_of_flex_start_is_deleted_at_the_end(cloud: Cloud, tmp_path: Path) -> None:
    expires = soon(cloud)
    cloud.control(capacity=none_left("us-central1-a/spot", "us-central1-a/on-demand"))
    site = with_budget(
        cloud, tmp_path, expires, instance_types=("a2-highgpu-8g",), settings={"flex_start": True}
    )
    site.up()
    cloud.advance(600)
    pass_end(cloud, expires)
    path = site.layout().cluster_path
    assert [pool.name for pool in cloud.gke.list_node_pools(parent=path).node_pools] == ["cpu"]


def test_down_leaves_nothing_and_an_orphaned_workflow_is_found(cloud: Cloud, tmp_path: Path) -> None:
    empty = set(cloud.state())
    site = with_budget(cloud, tmp_path, soon(cloud))
    site.up()
    assert not unmanaged.audit(site.gcp, None, site.search()).found
    for job in jobs(cloud):
        assert cloud.rest("DELETE", f"/v1/{job['name']}")[0] == 200
    assert SCHEDULE in with_budget(cloud, tmp_path / "lost", soon(cloud)).found()
    with_budget(cloud, tmp_path / "other", soon(cloud)).down()
    assert not set(cloud.state()) - empty
    policy = cloud.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", {})[1]
    assert "-end@" not in str(policy)


def test_a_region_without_workflows_uses_another_one(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(workflow_regions=["europe-west1", "us-east4", "us-east1"])
    expires = soon(cloud)
    site = with_budget(cloud, tmp_path, expires)
    site.up()
    assert not with_budget(cloud, tmp_path / "other", expires).planned()
    assert {entry.split("/")[3] for entry in cloud.state("workflows:")} == {"us-east1"}
    unsearched = unmanaged.audit(site.gcp, "t", site.search()).unsearched
    assert not [what for what in unsearched if "workflow" in what]
    pass_end(cloud, expires)
    assert machines(cloud, "gpu") == 0


def test_a_prepared_account_needs_the_role_that_starts_workflows(cloud: Cloud, tmp_path: Path) -> None:
    accounts = f"/v1/projects/{PROJECT}/serviceAccounts"
    assert cloud.rest("POST", accounts, {"accountId": "cloudrec-end"})[0] == 200
    cloud.advance(60)
    email = f"cloudrec-end@{PROJECT}.iam.gserviceaccount.com"
    site = with_budget(cloud, tmp_path, soon(cloud))
    (found,) = [each for each in preflight.findings(site.gcp, site.layout()) if each.check == "end account"]
    assert (found.ok, found.blocks, email in found.remedy) == (False, True, True)
    wish = {"roleId": "cloudrecEnd", "role": yaml.safe_load(ROLE.read_text())}
    assert cloud.rest("POST", f"/v1/projects/{PROJECT}/roles", wish)[0] == 200
    options = {"options": {"requestedPolicyVersion": 3}}
    policy = cloud.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", options)[1]
    role = f"projects/{PROJECT}/roles/cloudrecEnd"
    policy["bindings"].append({"role": role, "members": [f"serviceAccount:{email}"]})
    assert cloud.rest("POST", f"/v3/projects/{PROJECT}:setIamPolicy", {"policy": policy})[0] == 200
    cloud.advance(600)
    (found,) = [each for each in preflight.findings(site.gcp, site.layout()) if each.check == "end account"]
    assert found.ok
    fixed = with_end(cloud, tmp_path, soon(cloud))
    assert not [each for each in preflight.findings(fixed.gcp, fixed.layout()) if each.check == "end account"]
    expires = soon(cloud)
    with_budget(cloud, tmp_path, expires).up()
    pass_end(cloud, expires)
    assert machines(cloud, "gpu") == 0
    run_on(cloud)
    with_budget(cloud, tmp_path, expires).down()
    assert role in str(cloud.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", options)[1])


def test_a_cluster_without_an_end_in_its_label_has_none_to_move(cloud: Cloud, tmp_path: Path) -> None:
    site = with_budget(cloud, tmp_path, soon(cloud))
    with pytest.raises(PreflightError, match="has an end"):
        end_label.move(site.gcp, "t", soon(cloud))


@pytest.mark.parametrize("limit", [None, 1800000000])
def test_a_program_is_read_as_it_was_written_and_another_one_is_none(limit: int | None) -> None:
    program = Program(
        cluster="projects/p/locations/us-central1-a/clusters/cloudrec-t",
        expires=1795514400,
        limit=limit,
        pools={"gpu-a-spot": RESIZE, "gpu-a-flex": DELETE},
    )
    source = program.source()
    assert Program.of(source) == program
    assert programs.read(source)
    assert Program.of(source.replace("0}}", "1}}", 1)) is None
    assert Program.of(source.replace(">", "<", 1)) is None
    assert Program.of("{}") is None
    many = {f"gpu-{number:036}": RESIZE for number in range(500)}
    assert len(Program(cluster=program.cluster, expires=1, limit=limit, pools=many).source()) < 128 * 1024


class Idle:
    """A cluster whose end is far, for a program in execution."""

    def now(self) -> float:
        return 1.0

    def http(self, method: str, arguments: dict[str, Any]) -> Any:
        assert (method, arguments["auth"]) == ("GET", {"type": "OAuth2"})
        return {"code": 200, "headers": {}, "body": {"resourceLabels": {LABEL: "20991231t235959z"}}}


def test_the_price_is_that_of_the_steps_before_the_end() -> None:
    path = f"projects/{PROJECT}/locations/us-central1-a/clusters/cloudrec-t"
    source = Program(cluster=path, expires=1, limit=None, pools={"gpu-a-spot": RESIZE}).source()
    interpreter = Interpreter(Idle(), [])
    assert interpreter.run(programs.read(source), {}) == "before the end"
    monthly = interpreter.billed * 0.01 / 1000 * 60 * HOURS_A_MONTH
    assert prices.shipped().service("end-workflow") == pytest.approx(monthly / HOURS_A_MONTH, rel=0.01)

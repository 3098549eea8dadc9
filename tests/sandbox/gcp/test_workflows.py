"""Workflows: what is refused, programs in execution as an account, and what they cost."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox.gcp.support import PROJECT, REGION, Gcp
from tests.sandbox.gcp.support_gke import PATH, ready
from tests.sandbox.gcp.test_gke_permissions import grant

HOSTS = ("workflows.googleapis.com", "workflowexecutions.googleapis.com")
PARENT = f"projects/{PROJECT}/locations/{REGION}"
URL = f"/v1/{PARENT}/workflows"
NAME = "runner-of-one"
ACCOUNT = f"{NAME}@{PROJECT}.iam.gserviceaccount.com"
GKE = f"https://container.googleapis.com/v1/{PATH}"
STOPPED = 0.001  # of the clock: time passes by order


@pytest.fixture
def cloud(gcp: Gcp) -> Iterator[Gcp]:
    gcp.control(apis=dict.fromkeys(HOSTS, True), real_times=False)
    assert gcp.rest("POST", f"/v1/projects/{PROJECT}/serviceAccounts", {"accountId": NAME})[0] == 200
    gcp.advance(60)
    yield gcp
    gcp.control(real_times=True)


def source(*steps: dict[str, Any]) -> str:
    named = [{f"step{number}": step} for number, step in enumerate(steps)]
    return json.dumps({"main": {"steps": named}})


def value(text: str) -> str:
    return source({"return": text})


def wish(text: str, **more: Any) -> dict[str, Any]:
    return {"sourceContents": text, "serviceAccount": ACCOUNT, **more}


def deploy(cloud: Gcp, text: str, name: str = "one", **more: Any) -> dict[str, Any]:
    """Deploy a workflow; the operation when it is done."""
    status, begun = cloud.rest("POST", f"{URL}?workflowId={name}", wish(text, **more))
    assert status == 200, begun
    return done(cloud, begun)


def done(cloud: Gcp, begun: dict[str, Any]) -> dict[str, Any]:
    assert not begun.get("done")
    cloud.advance(60)
    found: dict[str, Any] = cloud.rest("GET", f"/v1/{begun['name']}")[1]
    assert found["done"]
    return found


def execute(cloud: Gcp, name: str = "one", seconds: float = 1, **more: Any) -> dict[str, Any]:
    status, begun = cloud.rest("POST", f"{URL}/{name}/executions", more)
    assert (status, begun["state"]) == (200, "ACTIVE")
    cloud.advance(seconds)
    found: dict[str, Any] = cloud.rest("GET", f"/v1/{begun['name']}")[1]
    return found


def result(cloud: Gcp, text: str, **more: Any) -> Any:
    """The result of a program, or the tag of its error."""
    if not cloud.state(f"workflows:workflows:{PARENT}/workflows/one"):
        assert "error" not in deploy(cloud, text)
    else:
        begun = cloud.rest("PATCH", f"{URL}/one?updateMask=sourceContents", {"sourceContents": text})[1]
        assert "error" not in done(cloud, begun)
    found = execute(cloud, **more)
    if found["state"] == "FAILED":
        return json.loads(found["error"]["payload"])["tags"][0]
    return json.loads(found["result"])


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("1one", wish(value("x")), "workflow_id"),
        ("one-", wish(value("x")), "workflow_id"),
        ("o" * 65, wish(value("x")), "workflow_id"),
        ("one", wish(value("x"), colour="red"), "colour"),
        ("one", wish(value("x"), labels={"A": "b"}), "labels"),
        ("one", wish(value("x"), labels={"a": "2026-11-24T10:00:00Z"}), "labels"),
        ("one", wish(value("x"), description="x" * 1001), "1000"),
        ("one", wish(value("x"), callLogLevel="LOUD"), "call_log_level"),
        ("one", wish(""), "source_contents"),
        ("one", wish(value("x" * 2**17)), "131072 bytes"),
        ("one", wish(value("x"), serviceAccount=f"other@{PROJECT}.iam.gserviceaccount.com"), "not exist"),
        ("one", wish(value("x"), serviceAccount="me"), "Invalid service account"),
    ],
)
def test_an_invalid_workflow_is_refused(cloud: Gcp, name: str, body: dict[str, Any], said: str) -> None:
    status, answer = cloud.rest("POST", f"{URL}?workflowId={name}", body)
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert said in answer["error"]["message"]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("{", 3, "no JSON"),
        ('{"other": {}}', 3, "main"),
        ('{"main": {"steps": []}}', 3, "not empty"),
        ('{"main": {"steps": [{"a": {"return": 1}}, {"a": {"return": 1}}]}}', 3, "twice"),
        (source({"colour": "red"}), 3, "does nothing"),
        (source({"return": 1, "colour": "red"}), 3, "unexpected entry 'colour'"),
        (value("${unknown}"), 3, "unrecognized symbol 'unknown'"),
        (value("${1 +}"), 3, "error in expression"),
        (value("${'one'}"), 3, "double quotes"),
        (value("${[1, 2]}"), 3, "List is not in the language"),
        (value("${" + "+".join(["1"] * 201) + "}"), 3, "the limit is 400"),
        (value('${http.get("x")}'), 3, "blocking"),
        (source({"call": "http.get", "args": {}}), 3, "without a url"),
        (source({"call": "http.get", "args": {"url": "x", "colour": 1}}), 3, "colour"),
        (
            source(
                {"for": {"value": "each", "in": [1], "steps": [{"in": {"assign": [{"x": 1}]}}]}},
                {"return": "${x}"},
            ),
            3,
            "unrecognized symbol 'x'",
        ),
        (value("${uuid.generate()}"), 12, "uuid.generate"),
        (value("a ${b}"), 12, "within the text"),
        (source({"call": "googleapis.compute.v1.instances.get", "args": {}}), 12, "googleapis.compute"),
        (source({"parallel": {}}), 12, "'parallel'"),
        (source({"assign": [{"a": 1}], "next": "end"}), 12, "'next'"),
        ('{"main": {"steps": []}, "sub": {"steps": []}}', 12, "subworkflow"),
    ],
)
def test_a_program_with_an_error_or_of_another_part_of_the_language_is_not_deployed(
    cloud: Gcp, text: str, code: int, said: str
) -> None:
    error = deploy(cloud, text)["error"]
    assert (error["code"], said in error["message"]) == (code, True), error
    assert not cloud.state("workflows:")


def test_a_name_is_used_once_and_only_in_a_location_of_the_service(cloud: Gcp) -> None:
    assert deploy(cloud, value("x"))["response"]["revisionId"].startswith("000001-")
    assert deploy(cloud, value("y"))["error"]["code"] == 6
    assert [each["name"] for each in cloud.rest("GET", URL)[1]["workflows"]] == [f"{PARENT}/workflows/one"]
    cloud.control(workflow_regions=["us-east1"])
    status, answer = cloud.rest("GET", URL)
    assert (status, "is not found or access is unauthorized" in answer["error"]["message"]) == (403, True)
    cloud.control(workflow_regions=["us-central1"])
    assert done(cloud, cloud.rest("DELETE", f"{URL}/one")[1])["response"] is not None
    assert cloud.rest("GET", f"{URL}/one")[0] == 404
    assert cloud.rest("POST", f"{URL}/one/executions", {})[0] == 404


def test_a_workflow_needs_the_apis_the_permissions_and_to_act_as_its_account(cloud: Gcp) -> None:
    cloud.control(apis={HOSTS[0]: False})
    refused = cloud.rest("POST", f"{URL}?workflowId=one", wish(value("x")))[1]
    assert refused["error"]["details"][0]["reason"] == "SERVICE_DISABLED"
    cloud.control(apis={HOSTS[0]: True})
    deploy(cloud, value("x"))
    grant(cloud, "workflows.workflows.create", "workflows.workflows.get")
    for method, path, permission in (
        ("POST", f"{URL}?workflowId=two", "iam.serviceAccounts.actAs"),
        ("GET", URL, "workflows.workflows.list"),
        ("DELETE", f"{URL}/one", "workflows.workflows.delete"),
        ("PATCH", f"{URL}/one?updateMask=description", "workflows.workflows.update"),
        ("POST", f"{URL}/one/executions", "workflows.executions.create"),
    ):
        status, answer = cloud.rest(method, path, wish(value("x")) if method in ("POST", "PATCH") else None)
        assert (status, permission in answer["error"]["message"]) == (403, True), answer
    assert cloud.rest("GET", f"{URL}/one")[0] == 200


def test_a_new_source_is_a_new_revision(cloud: Gcp) -> None:
    deploy(cloud, value("x"), labels={"a": "b"})
    url = f"{URL}/one?updateMask=source_contents"
    assert done(cloud, cloud.rest("PATCH", url, {"sourceContents": value("y")})[1])["response"]["labels"]
    assert cloud.rest("GET", f"{URL}/one")[1]["revisionId"].startswith("000002-")
    assert done(cloud, cloud.rest("PATCH", url, {"sourceContents": "{"})[1])["error"]["code"] == 3
    assert cloud.rest("PATCH", f"{URL}/one?updateMask=state", {"state": "ACTIVE"})[0] == 400
    assert json.loads(execute(cloud)["result"]) == "y"


def test_values_are_those_of_the_language(cloud: Gcp) -> None:
    for text, expected in {
        "${1 + 2 * 3}": 7,
        '${"a" + "b"}': "ab",
        '${not("a" == "b") and 2 > 1}': True,
        '${text.substring("abcdef", 1, 3)}': "bc",
        '${text.substring("abc", 1, 9)}': "IndexError",
        '${time.parse("2026-11-24T10:00:00Z")}': 1795514400,
        '${time.parse("20261124t100000z")}': "ValueError",
        '${time.parse("never")}': "ValueError",
        "${math.min(3, 2)}": 2,
        '${"a" + 1}': "TypeError",
        "${1 and true}": "TypeError",
    }.items():
        assert result(cloud, value(text)) == expected, text
    whole = {"assign": [{"a": {"b": [1, 2]}}]}
    for text, expected in {
        "${a.b[1]}": 2,
        "${a.c}": "KeyError",
        "${a.b[2]}": "IndexError",
        '${default(map.get(a, "c"), 5)}': 5,
        "${2 in a.b}": True,
        "${len(a.b)}": 2,
    }.items():
        assert result(cloud, source(whole, {"return": text})) == expected, text


def test_a_program_branches_repeats_and_catches(cloud: Gcp) -> None:
    add = [{"add": {"assign": [{"sum": "${sum + each}"}]}}]
    even = {"switch": [{"condition": "${each % 2 == 0}", "steps": add}]}
    loop = {"value": "each", "in": [1, 2, 3, 4], "steps": [{"even": even}]}
    assert result(cloud, source({"assign": [{"sum": 0}]}, {"for": loop}, {"return": "${sum}"})) == 6
    caught = {
        "try": {"steps": [{"a": {"assign": [{"x": '${int("one")}'}]}}]},
        "except": {"as": "e", "steps": [{"b": {"assign": [{"x": "${e.tags[0]}"}]}}]},
    }
    assert result(cloud, source({"assign": [{"x": 0}]}, caught, {"return": "${x}"})) == "ValueError"
    assert result(cloud, source({"call": "http.get", "args": {"url": "https://example.com/"}})) == "HttpError"


def read(**more: Any) -> dict[str, Any]:
    return {"call": "http.get", "args": {"url": GKE, **more}, "result": "cluster"}


AS_ITSELF = {"auth": {"type": "OAuth2"}}


def test_a_program_has_the_permissions_of_its_account(cloud: Gcp) -> None:
    ready(cloud)
    cloud.control(enforce_iam=False)
    text = source(read(**AS_ITSELF), {"return": "${cluster.body.name}"})
    assert result(cloud, text) == PATH.rpartition("/")[2]
    assert result(cloud, source(read(), {"return": "${cluster.code}"})) == "HttpError"  # without a token
    caught = {"try": read(**AS_ITSELF), "except": {"as": "e", "steps": [{"b": {"return": "${e.code}"}}]}}
    deploy(cloud, source(caught), "two")
    cloud.control(enforce_iam=True)
    grant(cloud, "workflows.executions.create", "workflows.executions.get")
    assert json.loads(execute(cloud, "two")["result"]) == 403


def test_a_call_is_retried_as_the_program_says(cloud: Gcp) -> None:
    ready(cloud)
    backoff = {"initial_delay": 10, "max_delay": 30, "multiplier": 2}
    retry = {"predicate": "${http.default_retry_predicate}", "max_retries": 3, "backoff": backoff}
    deploy(cloud, source({"try": read(**AS_ITSELF), "retry": retry}, {"return": "${cluster.code}"}))
    cloud.control(speed=STOPPED, workflow_faults=[{"method": "GET", "times": 3, "status": 503}])
    assert execute(cloud, seconds=50)["state"] == "ACTIVE"  # 10, 20 and 30 seconds
    cloud.advance(20)
    last = cloud.rest("GET", f"{URL}/one/executions")[1]["executions"][0]
    assert (last["state"], last["result"]) == ("SUCCEEDED", "200")
    cloud.control(workflow_faults=[{"method": "GET", "times": 1, "status": 500}])
    assert execute(cloud)["state"] == "FAILED"  # the default predicate does not retry it
    cloud.control(workflow_faults=[])


def test_a_job_of_cloud_scheduler_starts_executions_as_an_account_that_may(cloud: Gcp) -> None:
    cloud.control(apis={"cloudscheduler.googleapis.com": True}, speed=STOPPED)
    deploy(cloud, value("x"))
    job = {
        "name": f"{PARENT}/jobs/often",
        "schedule": "*/2 * * * *",
        "httpTarget": {
            "uri": f"https://workflowexecutions.googleapis.com{URL}/one/executions",
            "httpMethod": "POST",
            "body": base64.b64encode(b"{}").decode(),
            "oauthToken": {"serviceAccountEmail": ACCOUNT},
        },
    }
    assert cloud.rest("POST", f"/v1/{PARENT}/jobs", job)[0] == 200
    cloud.control(enforce_iam=True)
    cloud.advance(600)
    cloud.control(enforce_iam=False)
    assert cloud.rest("GET", f"/v1/{PARENT}/jobs/often")[1]["status"]["code"] == 7
    assert not cloud.rest("GET", f"{URL}/one/executions")[1]["executions"]
    options = {"options": {"requestedPolicyVersion": 3}}
    policy = cloud.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", options)[1]
    policy["bindings"].append({"role": "roles/workflows.invoker", "members": [f"serviceAccount:{ACCOUNT}"]})
    assert cloud.rest("POST", f"/v3/projects/{PROJECT}:setIamPolicy", {"policy": policy})[0] == 200
    cloud.advance(600)
    before = len(cloud.rest("GET", f"{URL}/one/executions")[1]["executions"])
    cloud.control(enforce_iam=True)
    cloud.advance(600)
    cloud.control(enforce_iam=False)
    assert len(cloud.rest("GET", f"{URL}/one/executions")[1]["executions"]) == before + 5


def test_steps_are_on_the_bill_after_the_free_ones(cloud: Gcp) -> None:
    many = {"value": "each", "in": list(range(2000)), "steps": [{"a": {"assign": [{"x": 1}]}}]}
    deploy(cloud, source({"for": many}, {"return": 1}))
    cloud.control(bill=True, speed=STOPPED)
    for _ in range(3):
        execute(cloud)
    lines = {each["kind"]: each["usd"] for each in cloud.ask("GET", "/bill")["lines"]}
    assert lines["workflow-steps"] == pytest.approx((3 * 2001 - 5000) * 0.01 / 1000)
    cloud.control(bill=False)


def test_a_snapshot_keeps_an_execution_that_waits(cloud: Gcp) -> None:
    sleep = {"call": "sys.sleep", "args": {"seconds": 100}}
    deploy(cloud, source({"assign": [{"x": "${sys.now()}"}]}, sleep, {"return": "${sys.now() - x}"}))
    cloud.control(speed=STOPPED)
    assert execute(cloud)["state"] == "ACTIVE"
    cloud.ask("POST", "/save", {"name": "waits"})
    cloud.ask("POST", "/restore", {"name": "waits"})
    cloud.control(speed=STOPPED)
    cloud.advance(200)
    last = cloud.rest("GET", f"{URL}/one/executions")[1]["executions"][0]
    assert json.loads(last["result"]) == pytest.approx(100, abs=1)

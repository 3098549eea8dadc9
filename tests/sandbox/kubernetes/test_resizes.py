"""New requests and limits of pods that run, Jobs of another controller, OpenAPI documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox.kubernetes.support_nodes import Cluster, conditions, job, pod, running, state, wait

PODS, JOBS = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running() as cluster:
        yield cluster


def resize(cluster: Cluster, name: str, resources: dict[str, Any]) -> None:
    found = cluster.pod(name)
    found["spec"]["containers"][0]["resources"] = resources
    cluster.patch(f"{PODS}/{name}/resize", {"spec": {"containers": found["spec"]["containers"]}})


def amounts(cpu: str, memory: str) -> dict[str, Any]:
    """Requests that are half of the limits, so that the pod stays Burstable."""
    return {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": cpu, "memory": memory}}


def running_pod(cluster: Cluster, name: str, program: str, **rest: Any) -> None:
    container = {"resources": amounts("1", "512Mi"), **rest.pop("container", {})}
    cluster.apply(pod(name, "python", "-u", "-c", program, container=container, **rest))
    wait(lambda: "running" in state(cluster.pod(name)) and cluster.log(name), what=f"a line of {name}")


def test_a_running_container_is_ended_once_it_uses_more_memory_than_its_new_limit(cluster: Cluster) -> None:
    running_pod(cluster, "large", "x = b'x' * (100 << 20)\nprint(1)\nimport time\ntime.sleep(600)")
    resize(cluster, "large", amounts("1", "32Mi"))
    wait(lambda: "terminated" in state(cluster.pod("large")), what="the end of the container")
    ended = cluster.pod("large")
    assert state(ended)["terminated"]["reason"] == "OOMKilled"
    assert ended["status"]["containerStatuses"][0]["resources"]["limits"]["memory"] == "32Mi"


def test_a_resize_restarts_a_container_if_its_policy_for_the_resource_demands_it(cluster: Cluster) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    program = "print(1)\nimport time\ntime.sleep(600)"
    container = {"resizePolicy": policy}
    running_pod(cluster, "restarted", program, restartPolicy="Always", container=container)
    resize(cluster, "restarted", amounts("2", "512Mi"))

    def status() -> dict[str, Any]:
        found: dict[str, Any] = cluster.pod("restarted")["status"]["containerStatuses"][0]
        return found

    wait(lambda: status().get("resources", {}).get("limits", {}).get("cpu") == "2", what="the new cores")
    assert status()["restartCount"] == 0
    resize(cluster, "restarted", amounts("2", "256Mi"))
    wait(lambda: status()["restartCount"] == 1, what="the restart")


def test_a_resize_beyond_the_whole_node_is_refused(cluster: Cluster) -> None:
    running_pod(cluster, "huge", "print(1)\nimport time\ntime.sleep(600)")
    with pytest.raises(
        AssertionError, match="node didn't have enough allocatable resources: memory"
    ) as refusal:
        resize(cluster, "huge", {"requests": {"memory": "900Ti"}, "limits": {"cpu": "1", "memory": "901Ti"}})
    assert '"code": 403' in str(refusal.value)


def test_a_job_of_another_controller_is_left_to_it(cluster: Cluster) -> None:
    cluster.apply(job("delegated", "true", managedBy="example.com/other"))
    cluster.apply(job("own", "true", managedBy="kubernetes.io/job-controller"))
    wait(lambda: "Complete" in conditions(cluster.job("own")), what="the end of the other Job")
    assert cluster.pods(run="delegated") == []
    assert cluster.job("delegated")["status"] == {}


def test_each_document_of_the_index_has_every_schema_that_it_refers_to(cluster: Cluster) -> None:
    places = cluster.get("/openapi/v3")["paths"]
    assert {"api/v1", "apis/batch/v1"} <= {*places}
    for place in ("api/v1", "apis/batch/v1", "apis/apiextensions.k8s.io/v1"):
        document = cluster.get(places[place]["serverRelativeURL"])
        schemas, text = document["components"]["schemas"], json.dumps(document)
        named = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
        assert named <= {*schemas}
        assert '"null"' not in text
    job_paths = cluster.get("/openapi/v3/apis/batch/v1")["paths"]
    create = job_paths["/apis/batch/v1/namespaces/{namespace}/jobs"]["post"]
    assert create["x-kubernetes-group-version-kind"] == {"group": "batch", "version": "v1", "kind": "Job"}
    content = create["responses"]["200"]["content"]["application/json"]["schema"]
    assert content == {"$ref": "#/components/schemas/io.k8s.api.batch.v1.Job"}

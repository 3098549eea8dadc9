from __future__ import annotations

from typing import Any

from kubernetes import client, watch
from kubernetes.dynamic import DynamicClient

from tests.sandbox.kubernetes.support import (
    MERGE,
    STRATEGIC,
    Kubernetes,
    config_map,
    job,
    refusal,
    status_of,
)

MAPS = "/api/v1/namespaces/default/configmaps"


def test_a_new_object_has_a_uid_and_a_resource_version(kube: Kubernetes) -> None:
    made = kube.core.create_namespaced_config_map("default", config_map("one", a="1"))
    assert made.metadata.uid
    assert made.metadata.creation_timestamp
    assert made.metadata.generation is None
    found = kube.core.read_namespaced_config_map("one", "default")
    assert found.metadata.resource_version == made.metadata.resource_version


def test_a_second_object_of_the_same_name_is_refused(kube: Kubernetes) -> None:
    kube.core.create_namespaced_config_map("default", config_map("one"))
    error = refusal(kube.core.create_namespaced_config_map, "default", config_map("one"))
    told = status_of(error)
    assert (error.status, told["reason"]) == (409, "AlreadyExists")
    assert told["message"] == 'configmaps "one" already exists'


def test_an_update_with_an_old_resource_version_is_refused(kube: Kubernetes) -> None:
    old = kube.core.create_namespaced_config_map("default", config_map("one", a="1"))
    kube.core.patch_namespaced_config_map("one", "default", {"data": {"a": "2"}})
    error = refusal(kube.core.replace_namespaced_config_map, "one", "default", old)
    assert (error.status, status_of(error)["reason"]) == (409, "Conflict")
    assert "the object has been modified" in status_of(error)["message"]


def test_a_missing_object_is_not_found(kube: Kubernetes) -> None:
    error = refusal(kube.batch.read_namespaced_job, "none", "default")
    assert status_of(error)["message"] == 'jobs.batch "none" not found'
    assert kube.refused("GET", "/apis/nowhere/v1/things")["code"] == 404
    missing = refusal(kube.core.create_namespaced_config_map, "nowhere", config_map("one"))
    assert status_of(missing)["message"] == 'namespaces "nowhere" not found'


def test_generated_names_are_unique(kube: Kubernetes) -> None:
    body = {"metadata": {"generateName": "part-"}}
    names = {kube.done("POST", MAPS, body)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("part-") for name in names)


def test_a_dry_run_changes_nothing(kube: Kubernetes) -> None:
    kube.core.create_namespaced_config_map("default", config_map("one"), dry_run="All")
    assert refusal(kube.core.read_namespaced_config_map, "one", "default").status == 404


def test_a_paged_list_is_consistent(kube: Kubernetes) -> None:
    for number in range(5):
        kube.core.create_namespaced_config_map("default", config_map(f"map-{number}"))
    first = kube.core.list_namespaced_config_map("default", limit=2)
    assert first.metadata.remaining_item_count == 3
    kube.core.delete_namespaced_config_map("map-4", "default")
    rest = kube.core.list_namespaced_config_map("default", limit=10, _continue=first.metadata._continue)
    assert [each.metadata.name for each in (*first.items, *rest.items)] == [
        f"map-{number}" for number in range(5)
    ]
    assert rest.metadata.resource_version == first.metadata.resource_version


def test_an_expired_continue_token_is_gone(kube: Kubernetes) -> None:
    for number in range(3):
        kube.core.create_namespaced_config_map("default", config_map(f"map-{number}"))
    first = kube.core.list_namespaced_config_map("default", limit=1)
    kube.control(compact=True)
    error = refusal(
        kube.core.list_namespaced_config_map, "default", limit=1, _continue=first.metadata._continue
    )
    assert (error.status, status_of(error)["reason"]) == (410, "Expired")


def test_selectors_filter_objects(kube: Kubernetes) -> None:
    for name, labels in (("a", {"tier": "x", "run": "1"}), ("b", {"tier": "y"}), ("c", {})):
        body = {**config_map(name), "metadata": {"name": name, "labels": labels}}
        kube.core.create_namespaced_config_map("default", body)

    def chosen(**selector: str) -> list[str]:
        found = kube.core.list_namespaced_config_map("default", **selector)
        return [each.metadata.name for each in found.items]

    assert chosen(label_selector="tier") == ["a", "b"]
    assert chosen(label_selector="tier in (x, y),run!=1") == ["b"]
    assert chosen(label_selector="!tier") == ["c"]
    assert chosen(label_selector="tier notin (x)") == ["b", "c"]
    assert chosen(field_selector="metadata.name=b") == ["b"]
    error = refusal(chosen, field_selector="spec.nodeName=x")
    assert error.status == 400


def test_items_of_built_in_lists_omit_their_kind(kube: Kubernetes) -> None:
    kube.core.create_namespaced_config_map("default", config_map("one"))
    listed = kube.done("GET", MAPS)
    assert listed["kind"] == "ConfigMapList"
    assert all("kind" not in item for item in listed["items"])


def test_a_watch_yields_changes_since_a_resource_version(kube: Kubernetes) -> None:
    since = kube.core.list_namespaced_config_map("default").metadata.resource_version
    kube.core.create_namespaced_config_map("default", config_map("one", a="1"))
    kube.core.patch_namespaced_config_map("one", "default", {"data": {"a": "2"}})
    kube.core.delete_namespaced_config_map("one", "default")
    events = watch.Watch().stream(
        kube.core.list_namespaced_config_map, "default", resource_version=since, timeout_seconds=1
    )
    told = []
    for event in events:
        told.append((event["type"], (event["object"].data or {}).get("a")))
        if event["type"] == "DELETED":
            break
    assert told == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


def test_an_object_that_leaves_the_selection_is_a_deletion_for_the_watch(kube: Kubernetes) -> None:
    body = {**config_map("one"), "metadata": {"name": "one", "labels": {"on": "yes"}}}
    made = kube.core.create_namespaced_config_map("default", body)
    kube.core.patch_namespaced_config_map("one", "default", {"metadata": {"labels": {"on": "no"}}})
    stream = watch.Watch().stream(
        kube.core.list_namespaced_config_map,
        "default",
        label_selector="on=yes",
        resource_version=made.metadata.resource_version,
        timeout_seconds=1,
    )
    assert next(iter(stream))["type"] == "DELETED"


def test_a_watch_ends_at_its_timeout_with_a_bookmark(kube: Kubernetes) -> None:
    status, _, text = kube.raw(
        "GET", MAPS, watch="true", timeoutSeconds="0.2", allowWatchBookmarks="true", resourceVersion="0"
    )
    assert (status, text["type"]) == (200, "BOOKMARK")
    assert int(text["object"]["metadata"]["resourceVersion"]) > 1000


def test_a_watch_from_an_expired_version_is_gone(kube: Kubernetes) -> None:
    made = kube.core.create_namespaced_config_map("default", config_map("one"))
    kube.core.patch_namespaced_config_map("one", "default", {"data": {"a": "2"}})
    kube.control(compact=True)
    stream = watch.Watch().stream(
        kube.core.list_namespaced_config_map,
        "default",
        resource_version=str(int(made.metadata.resource_version) - 1),
        timeout_seconds=1,
    )
    assert refusal(lambda: list(stream)).status == 410


def test_status_is_changed_only_through_its_subresource(kube: Kubernetes) -> None:
    path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"

    def wish(name: str) -> dict[str, Any]:
        return {"defaultBackend": {"service": {"name": name, "port": {"number": 80}}}}

    kube.done("POST", path, {"metadata": {"name": "one"}, "spec": wish("a")})
    status = {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}
    changed = kube.done("PATCH", f"{path}/one", {"spec": wish("b"), "status": status}, content_type=MERGE)
    assert (changed["spec"], changed.get("status")) == (wish("b"), None)
    assert changed["metadata"]["generation"] == 2
    both = {"spec": wish("c"), "status": status}
    changed = kube.done("PATCH", f"{path}/one/status", both, content_type=MERGE)
    assert (changed["spec"], changed["status"]) == (wish("b"), status)
    assert changed["metadata"]["generation"] == 2


def test_a_strategic_patch_merges_lists_by_key(kube: Kubernetes) -> None:
    template = job("one")["spec"]["template"]
    template["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    path = "/apis/apps/v1/namespaces/default/deployments"
    template["metadata"] = {"labels": {"app": "one"}}
    template["spec"]["restartPolicy"] = "Always"
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "one"}}, "template": template}
    kube.done("POST", path, {"metadata": {"name": "one"}, "spec": spec})
    env = [{"name": "B", "$patch": "delete"}, {"name": "C", "value": "3"}]
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "trainer", "env": env}]}}}}
    changed = kube.done("PATCH", f"{path}/one", patch, content_type=STRATEGIC)
    (container,) = changed["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "A", "value": "1"}, {"name": "C", "value": "3"}]
    assert container["image"] == "example.com/trainer:1"


def test_an_invalid_json_patch_is_refused_as_a_whole(kube: Kubernetes) -> None:
    kube.core.create_namespaced_config_map("default", config_map("one", a="1"))
    steps = [
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/data/a", "value": "9"},
    ]
    assert refusal(kube.core.patch_namespaced_config_map, "one", "default", steps).status == 422
    assert kube.core.read_namespaced_config_map("one", "default").data == {"a": "1"}


def test_discovery_lists_the_served_kinds(kube: Kubernetes) -> None:
    version = client.VersionApi(kube.api).get_code()
    assert version.git_version.startswith("v1.")
    jobs = DynamicClient(kube.api).resources.get(api_version="batch/v1", kind="Job")
    assert (jobs.name, jobs.namespaced) == ("jobs", True)
    assert kube.raw("GET", "/readyz")[2] == b"ok"


def test_an_event_is_served_by_both_api_groups(kube: Kubernetes) -> None:
    about = {"kind": "Pod", "name": "one", "namespace": "default"}
    told = {"reason": "Why", "message": "told", "eventTime": "2026-11-20T10:00:00.000000Z"}
    body = {"metadata": {"name": "one"}, "involvedObject": about, **told}
    kube.done("POST", "/api/v1/namespaces/default/events", body)
    found = client.EventsV1Api(kube.api).read_namespaced_event("one", "default")
    assert (found.regarding.name, found.note) == ("one", "told")
    chosen = kube.core.list_namespaced_event("default", field_selector="involvedObject.name=one")
    assert [each.message for each in chosen.items] == ["told"]


def test_a_body_that_is_too_large_is_refused(kube: Kubernetes) -> None:
    assert kube.refused("POST", MAPS, config_map("one", a="x" * (3 << 20)))["code"] == 413

from __future__ import annotations

from typing import Any

from tests.sandbox.kubernetes.support import APPLY, MERGE, Kubernetes, config_map, job

MAP = "/api/v1/namespaces/default/configmaps/one"
JOB = "/apis/batch/v1/namespaces/default/jobs/one"


def managers(obj: dict[str, Any]) -> dict[str, Any]:
    return {each["manager"]: each["fieldsV1"] for each in obj["metadata"].get("managedFields", ())}


def test_apply_creates_an_object_and_a_second_apply_changes_nothing(kube: Kubernetes) -> None:
    status, _, made = kube.raw("PATCH", MAP, config_map("one", a="1"), content_type=APPLY, fieldManager="one")
    assert status == 201
    assert managers(made) == {"one": {"f:data": {"f:a": {}}}}
    again = kube.apply(MAP, config_map("one", a="1"))
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_job_applied_again_is_unchanged(kube: Kubernetes) -> None:
    made = kube.apply(JOB, job("one"))
    assert made["spec"]["backoffLimit"] == 6
    assert made["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "one"
    again = kube.apply(JOB, job("one"))
    assert again["metadata"]["generation"] == 1


def test_a_field_no_longer_applied_is_removed_unless_another_manager_owns_it(kube: Kubernetes) -> None:
    kube.apply(MAP, config_map("one", a="1", b="2", c="3"))
    kube.apply(MAP, config_map("one", b="2"), manager="two")
    left = kube.apply(MAP, config_map("one", a="1"))
    assert left["data"] == {"a": "1", "b": "2"}


def test_a_field_of_another_manager_is_a_conflict_unless_forced(kube: Kubernetes) -> None:
    kube.apply(MAP, config_map("one", a="1"))
    told = kube.refused("PATCH", MAP, config_map("one", a="2"), content_type=APPLY, fieldManager="two")
    assert (told["code"], told["reason"]) == (409, "Conflict")
    assert told["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    ]
    forced = kube.apply(MAP, config_map("one", a="2"), manager="two", force="true")
    assert forced["data"] == {"a": "2"}
    assert managers(forced) == {"two": {"f:data": {"f:a": {}}}}


def test_an_update_takes_ownership_and_conflicts_with_a_later_apply(kube: Kubernetes) -> None:
    kube.apply(MAP, config_map("one", a="1"))
    kube.done("PATCH", MAP, {"data": {"a": "9"}}, content_type=MERGE, fieldManager="hand")
    told = kube.refused("PATCH", MAP, config_map("one", a="1"), content_type=APPLY, fieldManager="one")
    assert 'conflict with "hand" using v1' in told["message"]


def test_items_of_a_list_are_owned_by_their_keys(kube: Kubernetes) -> None:
    path = "/api/v1/namespaces/default/services/one"

    def service(*ports: int) -> dict[str, Any]:
        told = [{"name": f"p{port}", "port": port} for port in ports]
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "one"},
            "spec": {"clusterIP": "None", "ports": told},
        }

    kube.apply(path, service(80, 81))
    both = kube.apply(path, service(82), manager="two", force="true")
    assert [each["port"] for each in both["spec"]["ports"]] == [80, 81, 82]
    left = kube.apply(path, service(80))
    assert [each["port"] for each in left["spec"]["ports"]] == [80, 82]


def test_status_and_spec_have_separate_owners(kube: Kubernetes) -> None:
    path = "/api/v1/namespaces/default/resourcequotas/one"
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one"}}
    wish = {**quota, "spec": {"hard": {"pods": "4"}}}
    kube.apply(path, wish)
    told = kube.apply(f"{path}/status", {**quota, "status": {"used": {"pods": "1"}}}, manager="controller")
    assert told["status"] == {"used": {"pods": "1"}}
    assert managers(told)["controller"] == {"f:status": {"f:used": {"f:pods": {}}}}
    kube.apply(path, wish)
    assert kube.done("GET", path)["status"] == {"used": {"pods": "1"}}


def test_an_unknown_field_cannot_be_applied(kube: Kubernetes) -> None:
    told = kube.refused("PATCH", JOB, job("one", colour="red"), content_type=APPLY, fieldManager="one")
    assert told["code"] == 500
    assert told["message"].endswith(".spec.colour: field not declared in schema")


def test_apply_needs_a_field_manager_and_refuses_managed_fields(kube: Kubernetes) -> None:
    assert kube.refused("PATCH", MAP, config_map("one"), content_type=APPLY)["code"] == 422
    body = config_map("one")
    body["metadata"]["managedFields"] = [{"manager": "x"}]
    assert kube.refused("PATCH", MAP, body, content_type=APPLY, fieldManager="one")["code"] == 400


def test_an_empty_list_of_a_network_policy_is_dropped_so_each_apply_is_a_change(
    kube: Kubernetes,
) -> None:
    path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/one"
    spec = {"podSelector": {}, "policyTypes": ["Ingress"]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "one"}}
    for applied in (1, 2, 3):
        kube.apply(path, {**policy, "spec": {**spec, "ingress": []}})
        there = kube.done("GET", path)
        assert there["metadata"]["generation"] == applied
        assert "ingress" not in there["spec"]
    for _ in range(2):
        left = kube.apply(path, {**policy, "spec": spec})
        assert left["metadata"]["generation"] == 3

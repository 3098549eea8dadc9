"""Fields of an API server's answer that are missing or of another type are found at the client."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cloudrec.kubernetes.client.kinds import check_answer

POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "x", "labels": {"a": "b"}, "ownerReferences": None},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": 4}},
}
# A pod with what the API allows and cloudrec does not use.
USUAL: dict[str, Any] = {
    "metadata": {"name": "y", "generateName": "y-", "managedFields": [{"fieldsV1": {}}], "finalizers": ["f"]},
    "spec": {
        "containers": [
            {
                "name": "c",
                "resources": {"claims": [{"name": "gpu", "request": "r"}], "requests": {"memory": "1Gi"}},
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "ports": [{"containerPort": 80}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        ],
        "volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        "tolerations": [{"operator": "Exists", "tolerationSeconds": 300}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
        "nodeSelector": {"a": "b"},
        "topologySpreadConstraints": [{"maxSkew": 1}],
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None, "observedGeneration": 1}],
        "containerStatuses": [
            {
                "name": "c",
                "restartCount": 1,
                "ready": True,
                "state": {"running": {"startedAt": "2026-11-27T00:00:00Z"}},
                "lastState": {"terminated": {"exitCode": 1, "signal": 0, "containerID": "c://1"}},
            }
        ],
        "podIPs": [{"ip": "10.0.0.1"}],
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "y-gpu"}],
    },
}


@pytest.mark.parametrize(
    ("part", "field", "value", "why"),
    [
        ("metadata", "name", None, "no name"),
        ("metadata", "name", ["x"], "metadata.name is of the type list"),
        ("metadata", "labels", {"a": 1}, "metadata.labels.a is of the type int"),
        ("spec", "containers", {}, "spec.containers is of the type dict"),
        ("spec", "containers", [{}], "spec.containers has no name"),
        ("spec", "containers", [None], "spec.containers has an empty element"),
        ("status", "conditions", ["Ready"], "status.conditions is of the type str"),
        ("status", "capacity", {"cpu": []}, "status.capacity.cpu is of the type list"),
    ],
)
def test_a_wrong_field_is_named(part: str, field: str, value: object, why: str) -> None:
    wrong = copy.deepcopy(POD)
    wrong[part][field] = value
    for document, form in ((wrong, "object"), ({"items": [POD, wrong]}, "list")):
        with pytest.raises(ValueError, match=why):
            check_answer(document, "/api/v1/pods", form)


@pytest.mark.parametrize(
    ("document", "form"),
    [
        (POD, "object"),
        (USUAL, "object"),
        ({"items": [POD, USUAL]}, "list"),
        ({"items": None, "metadata": {}}, "list"),
        ({"kind": "Status", "status": "Success"}, ""),
        ({"kind": "SelfSubjectAccessReview", "metadata": {}, "status": {"allowed": True}}, ""),
        ({}, ""),
        ([], ""),
    ],
)
def test_an_answer_of_the_api_passes(document: object, form: str) -> None:
    check_answer(document, "/api/v1/pods", form)


def test_objects_of_others_may_have_other_types() -> None:
    odd = {"kind": "Odd", "metadata": {"name": "x"}, "spec": "text", "status": {"conditions": "none"}}
    check_answer({"items": [odd]}, "/apis/odd.example/v1/odds", "list")
    with pytest.raises(ValueError, match="conditions"):
        check_answer({"items": [odd | {"spec": None}]}, "/apis/batch/v1/jobs", "list")


@pytest.mark.parametrize("path", ["/apis", "/apis/batch/v1", "/api/v1"])
@pytest.mark.parametrize("field", ["resources", "groups"])
def test_the_kinds_of_a_server_have_names(path: str, field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} has no"):
        check_answer({field: [{"verbs": []}]}, path, "")
    check_answer({field: "x"}, "/apis/user.openshift.io/v1/users/me", "")


@pytest.mark.parametrize("document", [[], {}, "x", {"kind": "Status", "status": "Success"}, {"value": []}])
@pytest.mark.parametrize("form", ["object", "list"])
def test_what_is_no_list_is_not_an_empty_one(document: object, form: str) -> None:
    with pytest.raises(ValueError, match=r"it is no|type str|no name"):
        check_answer(document, "/api/v1/pods", form)


@pytest.mark.parametrize(
    "document",
    [[], {}, {"kind": "Status", "status": "Success"}, {"status": {}}, {"status": {"allowed": "yes"}}],
)
def test_a_review_says_whether_it_is_allowed(document: object) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    with pytest.raises(ValueError, match=r"it is no object|no status|no allowed|of the type str"):
        check_answer(document, path, "")
    check_answer({"kind": "SelfSubjectAccessReview", "status": {"allowed": False}}, path, "")

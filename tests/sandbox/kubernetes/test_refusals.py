"""What a real API server refuses, field by field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sandbox.kubernetes.support import MERGE, Kubernetes, config_map, job, pod

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
POLICY = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [64, 65]}}]}


def container(**changes: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "image": "example.com/main:1", **changes}]


def template(**changes: Any) -> dict[str, Any]:
    spec = {"restartPolicy": "Never", "containers": container(), **changes}
    return {"spec": spec}


def codes(*values: int) -> dict[str, Any]:
    return {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": list(values)}}]}


def restarts(rule: dict[str, Any] | None = None, *, times: int = 1, **changes: Any) -> dict[str, Any]:
    codes = {"operator": "In", "values": [3]}
    rules = [rule or {"action": "Restart", "exitCodes": codes}] * times
    policy = {"restartPolicy": "Never", "restartPolicyRules": rules, **changes}
    return job("one", template=template(containers=container(**{k: v for k, v in policy.items() if v})))


_RULES = "spec.template.spec.containers[0].restartPolicyRules"
# Each was sent to a real 1.36.2 API server.
RESTARTS: list[tuple[str, str, Callable[[], dict[str, Any]], str]] = [
    ("rules without a policy", JOBS, lambda: restarts(restartPolicy=None), _RULES.removesuffix("Rules")),
    ("another policy", JOBS, lambda: restarts(restartPolicy="Sometimes"), _RULES.removesuffix("Rules")),
    ("more than 20 rules", JOBS, lambda: restarts(times=21), _RULES),
    (
        "another action",
        JOBS,
        lambda: restarts({"action": "Stop", "exitCodes": {"operator": "In", "values": [3]}}),
        f"{_RULES}[0].action",
    ),
    ("a rule without codes", JOBS, lambda: restarts({"action": "Restart"}), f"{_RULES}[0].exitCodes"),
    (
        "another operator",
        JOBS,
        lambda: restarts({"action": "Restart", "exitCodes": {"operator": "Is", "values": [3]}}),
        f"{_RULES}[0].exitCodes.operator",
    ),
    (
        "more than 255 codes",
        JOBS,
        lambda: restarts({"action": "Restart", "exitCodes": {"operator": "In", "values": list(range(256))}}),
        f"{_RULES}[0].exitCodes.values",
    ),
]


INVALID: list[tuple[str, str, Callable[[], dict[str, Any]], str]] = [
    *RESTARTS,
    ("a name with capitals", MAPS, lambda: config_map("One"), "metadata.name"),
    ("a name that is too long", MAPS, lambda: config_map("x" * 254), "metadata.name"),
    ("no name", MAPS, lambda: {"metadata": {}}, "metadata.name"),
    (
        "a label that is too long",
        MAPS,
        lambda: {"metadata": {"name": "one", "labels": {"a": "x" * 64}}},
        "metadata.labels",
    ),
    (
        "annotations that are too long",
        MAPS,
        lambda: {"metadata": {"name": "one", "annotations": {"a": "x" * 262_144}}},
        "metadata.annotations",
    ),
    ("more than 1 MiB of configuration", MAPS, lambda: config_map("one", a="x" * 1_048_577), ""),
    ("a container twice", PODS, lambda: pod("one", containers=container() * 2), "spec.containers[1].name"),
    ("no container", PODS, lambda: pod("one", containers=[]), "spec.containers"),
    ("no image", PODS, lambda: pod("one", containers=[{"name": "a"}]), "spec.containers[0].image"),
    (
        "a mount of an unknown volume",
        PODS,
        lambda: pod("one", containers=container(volumeMounts=[{"name": "v", "mountPath": "/v"}])),
        "spec.containers[0].volumeMounts[0].name",
    ),
    (
        "less limit than request",
        PODS,
        lambda: pod(
            "one", containers=container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "1500m"}})
        ),
        "spec.containers[0].resources.requests",
    ),
    (
        "half a GPU",
        PODS,
        lambda: pod("one", containers=container(resources={"limits": {"nvidia.com/gpu": "500m"}})),
        "spec.containers[0].resources.limits[nvidia.com/gpu]",
    ),
    (
        "GPUs asked for without a limit",
        PODS,
        lambda: pod("one", containers=container(resources={"requests": {"nvidia.com/gpu": "1"}})),
        "spec.containers[0].resources.limits",
    ),
    (
        "huge pages alone",
        PODS,
        lambda: pod("one", containers=container(resources={"limits": {"hugepages-2Mi": "4Mi"}})),
        "spec.containers[0].resources",
    ),
    (
        "seconds of a toleration without NoExecute",
        PODS,
        lambda: pod("one", tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 3}]),
        "spec.tolerations[0].effect",
    ),
    (
        "a job that is always restarted",
        JOBS,
        lambda: job("one", template=template(restartPolicy="Always")),
        "spec.template.spec.restartPolicy",
    ),
    (
        "a failure policy where containers are restarted",
        JOBS,
        lambda: job("one", template=template(restartPolicy="OnFailure"), podFailurePolicy=POLICY),
        "spec.template.spec.restartPolicy",
    ),
    (
        "exit codes out of order",
        JOBS,
        lambda: job("one", podFailurePolicy=codes(65, 64)),
        "spec.podFailurePolicy.rules[0].onExitCodes.values",
    ),
    (
        "success as a failure",
        JOBS,
        lambda: job("one", podFailurePolicy=codes(0)),
        "spec.podFailurePolicy.rules[0].onExitCodes.values[0]",
    ),
    (
        "a rule with neither codes nor conditions",
        JOBS,
        lambda: job("one", podFailurePolicy={"rules": [{"action": "Ignore"}]}),
        "spec.podFailurePolicy.rules[0]",
    ),
    (
        "replacing pods that are still ending, with a failure policy",
        JOBS,
        lambda: job("one", podFailurePolicy=POLICY, podReplacementPolicy="TerminatingOrFailed"),
        "spec.podReplacementPolicy",
    ),
    ("an index too long for a host's name", JOBS, lambda: job("x" * 62), "metadata.name"),
    (
        "a selector that does not fit",
        "/apis/apps/v1/namespaces/default/daemonsets",
        lambda: {
            "metadata": {"name": "one"},
            "spec": {
                "selector": {"matchLabels": {"a": "1"}},
                "template": {**template(restartPolicy="Always"), "metadata": {"labels": {"a": "2"}}},
            },
        },
        "spec.template.metadata.labels",
    ),
    (
        "a service without ports",
        "/api/v1/namespaces/default/services",
        lambda: {"metadata": {"name": "one"}, "spec": {"selector": {"a": "b"}}},
        "spec.ports",
    ),
    (
        "a service that begins with a dash",
        "/api/v1/namespaces/default/services",
        lambda: {"metadata": {"name": "-1st"}, "spec": {"clusterIP": "None"}},
        "metadata.name",
    ),
    (
        "a missing required field",
        JOBS,
        lambda: {"metadata": {"name": "one"}, "spec": {"podFailurePolicy": {}}},
        "spec.template",
    ),
]


@pytest.mark.parametrize(
    ("path", "body", "field"), [case[1:] for case in INVALID], ids=[c[0] for c in INVALID]
)
def test_invalid_objects_are_refused(
    process: Kubernetes, path: str, body: Callable[[], dict[str, Any]], field: str
) -> None:
    told = process.refused("POST", path, body())
    assert (told["code"], told["reason"]) == (422, "Invalid"), told
    assert field in [cause["field"] for cause in told["details"]["causes"]], told


def test_all_errors_are_reported_at_once(process: Kubernetes) -> None:
    wrong = job("One", template=template(restartPolicy="Always", containers=[{"name": "a"}]))
    causes = process.refused("POST", JOBS, wrong)["details"]["causes"]
    assert {each["field"] for each in causes} == {
        "metadata.name",
        "spec.template.spec.containers[0].image",
        "spec.template.spec.restartPolicy",
    }


def test_unknown_fields_are_refused_if_strict_or_dropped_with_a_warning(kube: Kubernetes) -> None:
    body = job("one", colour="red")
    told = kube.refused("POST", JOBS, body, fieldValidation="Strict")
    assert (told["code"], told["reason"]) == (400, "BadRequest")
    assert 'unknown field "spec.colour"' in told["message"]
    _, headers, made = kube.raw("POST", JOBS, body)
    assert "colour" not in made["spec"]
    assert headers["warning"] == '299 - "unknown field \\"spec.colour\\""'


def test_fields_of_wrong_types_are_refused(process: Kubernetes) -> None:
    told = process.refused("POST", JOBS, job("one", completions="two"))
    assert told["code"] == 400
    assert "cannot unmarshal string into Go struct field Job.spec.completions" in told["message"]
    limits = {"limits": {"memory": "lots"}}
    told = process.refused("POST", PODS, pod("one", containers=container(resources=limits)))
    assert (told["code"], "quantities must match" in told["message"]) == (400, True)
    assert process.refused("POST", JOBS, {"kind": "Pod", **job("one"), "apiVersion": "v1"})["code"] == 400


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"completions": 3}, "spec.completions"),
        ({"completionMode": "NonIndexed"}, "spec.completionMode"),
        ({"template": {"spec": {"terminationGracePeriodSeconds": 9}}}, "spec.template"),
        ({"podFailurePolicy": POLICY, "podReplacementPolicy": "Failed"}, "spec.podFailurePolicy"),
    ],
)
def test_the_template_of_a_job_is_immutable(kube: Kubernetes, changes: dict[str, Any], field: str) -> None:
    kube.done("POST", JOBS, job("one"))
    told = kube.refused("PATCH", f"{JOBS}/one", {"spec": changes}, content_type=MERGE)
    assert told["code"] == 422
    (cause,) = told["details"]["causes"]
    assert (cause["field"], cause["message"].endswith("field is immutable")) == (field, True)


def test_the_node_selector_of_an_unstarted_suspended_job_can_be_changed(kube: Kubernetes) -> None:
    kube.done("POST", JOBS, job("one"))
    elsewhere = {"spec": {"template": {"spec": {"nodeSelector": {"zone": "b"}}}}}
    changed = kube.done("PATCH", f"{JOBS}/one", elsewhere, content_type=MERGE)
    assert changed["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "b"}


def test_the_address_of_a_service_is_immutable(kube: Kubernetes) -> None:
    path = "/api/v1/namespaces/default/services"
    made = kube.done("POST", path, {"metadata": {"name": "one"}, "spec": {"ports": [{"port": 80}]}})
    assert made["spec"]["clusterIP"].startswith("10.96.")
    told = kube.refused("PATCH", f"{path}/one", {"spec": {"clusterIP": "None"}}, content_type=MERGE)
    assert "may not change once set" in told["message"]


def test_the_spec_of_a_pod_is_immutable(kube: Kubernetes) -> None:
    kube.done("POST", PODS, pod("one"))
    told = kube.refused("PATCH", f"{PODS}/one", {"spec": {"hostNetwork": True}}, content_type=MERGE)
    assert (told["code"], told["details"]["causes"][0]["reason"]) == (422, "FieldValueForbidden")
    kube.done("PATCH", f"{PODS}/one", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)


def test_an_immutable_config_map_cannot_be_changed(kube: Kubernetes) -> None:
    kube.done("POST", MAPS, {**config_map("one", a="1"), "immutable": True})
    assert kube.refused("PATCH", f"{MAPS}/one", {"data": {"a": "2"}}, content_type=MERGE)["code"] == 422


def test_pods_need_an_existing_service_account_and_priority_class(process: Kubernetes) -> None:
    told = process.refused("POST", PODS, pod("refused", serviceAccountName="absent"))
    assert (told["code"], told["reason"]) == (403, "Forbidden")
    assert told["message"].endswith('serviceaccount "absent" not found')
    told = process.refused("POST", PODS, pod("refused", priorityClassName="urgent"))
    assert told["message"] == 'pods "refused" is forbidden: no PriorityClass with name urgent was found'


def test_a_namespace_can_enforce_restricted_pods(kube: Kubernetes) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kube.done("POST", "/api/v1/namespaces", {"metadata": {"name": "strict", "labels": labels}})
    path = "/api/v1/namespaces/strict/pods"
    told = kube.refused("POST", path, pod("one"))
    assert (told["code"], 'violates PodSecurity "restricted:latest"' in told["message"]) == (403, True)
    secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    whole = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    kube.done("POST", path, pod("one", containers=container(securityContext=secure), securityContext=whole))


def test_a_pod_gets_default_values(kube: Kubernetes) -> None:
    made = kube.done("POST", PODS, pod("one", containers=container(resources={"limits": {"cpu": "1"}})))
    spec = made["spec"]
    assert (spec["restartPolicy"], spec["serviceAccountName"]) == ("Always", "default")
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert {each["tolerationSeconds"] for each in spec["tolerations"]} == {300}
    assert made["status"] == {"phase": "Pending", "qosClass": "Burstable"}

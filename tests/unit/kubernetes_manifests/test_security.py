"""The security settings of every pod, in every set of objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.kubernetes_manifests.support_matrix import (
    FAMILIES,
    IMAGE,
    matrix,
    objects,
    pod_templates,
    profile,
)

_SECRET = re.compile(r"secret|password|bearer|BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}", re.IGNORECASE)


def _pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, found in matrix():
        for template in pod_templates(found):
            yield name, template


def _containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for name, template in _pods():
        for container in template["spec"]["containers"]:
            yield name, template, container


def test_no_container_is_privileged_or_can_escalate() -> None:
    for name, template in _pods():
        for container in [*template["spec"]["containers"], *template["spec"].get("initContainers", [])]:
            context = container["securityContext"]
            assert context["privileged"] is False, name
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"]["drop"] == ["ALL"], name


def test_containers_write_only_to_their_volumes() -> None:
    for name, _, container in _containers():
        assert container["securityContext"]["readOnlyRootFilesystem"] is True, name


def test_capabilities_are_those_that_the_fabric_needs() -> None:
    allowed = {"azure-nd-a100-v4": {"IPC_LOCK"}, "azure-nd-h100-v5": {"IPC_LOCK"}}
    for name, _, container in _containers():
        family = next((each for each in FAMILIES if name.startswith(each)), "")
        added = set(container["securityContext"]["capabilities"].get("add", []))
        assert added <= allowed.get(family, set()), name


def test_a_pod_runs_as_root_only_if_its_transport_needs_root() -> None:
    for name, template in _pods():
        context = template["spec"]["securityContext"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        family = next(each for each in FAMILIES if name.startswith(each))
        may_be_root = profile(FAMILIES[family]).user == 0
        assert context["runAsNonRoot"] or (may_be_root and context["runAsUser"] == 0), name
        if context["runAsNonRoot"]:
            assert context["runAsUser"] == 10001, name


def test_host_resources_are_only_those_of_the_transport() -> None:
    for name, template in _pods():
        spec = template["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(spec), name
        family = next(each for each in FAMILIES if name.startswith(each))
        known = profile(FAMILIES[family])
        paths = {each.path for each in known.host_paths}
        paths |= {FAMILIES[family].local_path}  # where pods are privileged anyway
        paths |= {each.path for sidecar in known.sidecars for each in sidecar.host_paths}
        assert {each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each} <= paths, name


def test_only_the_guard_has_an_api_token() -> None:
    for name, template in _pods():
        is_guard = template["metadata"]["labels"].get("cloudrec/role") == "guard"
        assert template["spec"]["automountServiceAccountToken"] is is_guard, name
    roles = [each for _, found in matrix() for each in found if each["kind"] == "Role"]
    for role in roles:
        assert "*" not in json.dumps(role["rules"])
        assert all("secrets" not in rule["resources"] for rule in role["rules"])


def test_no_object_contains_a_secret() -> None:
    for name, found in matrix():
        for each in found:
            assert each["kind"] != "Secret", name
            assert _SECRET.search(json.dumps(each)) is None, (name, each["kind"])


def test_every_object_has_cloudrec_labels() -> None:
    for name, found in matrix():
        for each in [*found, *pod_templates(found)]:
            labels = each["metadata"]["labels"]
            assert labels["app.kubernetes.io/managed-by"] == "cloudrec", name
            assert labels["cloudrec/owner"] == "ann", name


def test_the_image_is_the_given_one_and_is_pulled_once() -> None:
    for name, _, container in _containers():
        assert container["image"] == IMAGE, name
        assert container["imagePullPolicy"] == "IfNotPresent", name


def test_device_and_huge_page_requests_equal_their_limits() -> None:
    for name, _, container in _containers():
        requests, limits = container["resources"]["requests"], container["resources"]["limits"]
        assert limits["memory"], name
        assert all(requests[each] == value for each, value in limits.items()), name


@pytest.mark.parametrize("launcher", ["torchrun", "pytorchjob", "trainjob", "jobset", "rayjob"])
def test_only_pods_of_the_same_run_can_connect(launcher: str) -> None:
    for family in FAMILIES:
        (policy,) = [each for each in objects(family, launcher) if each["kind"] == "NetworkPolicy"]
        own = {"podSelector": {"matchLabels": {"cloudrec/run": "dlrm"}}}
        first, *more = policy["spec"]["ingress"]
        assert first == {"from": [own]}
        if launcher == "rayjob":  # its operator polls the job's state at the head with the cluster's token
            (visitors,) = more
            assert visitors["ports"] == [{"protocol": "TCP", "port": 8265}]
        else:
            assert more == []
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        for rule in policy["spec"]["egress"][1:]:
            assert rule["ports"], "only among themselves may pods use any port"

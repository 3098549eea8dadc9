"""What every pod of ours may and may not do, in every set of objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.manifests.support_matrix import FAMILIES, IMAGE, matrix, objects, pod_templates, profile

_SETS = dict(matrix())
_SECRET = re.compile(r"secret|password|bearer|BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}", re.IGNORECASE)


def _pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, found in _SETS.items():
        for template in pod_templates(found):
            yield name, template


def _containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for name, template in _pods():
        for container in template["spec"]["containers"]:
            yield name, template, container


def test_no_container_is_privileged_or_may_become_so() -> None:
    for name, template in _pods():
        for container in [*template["spec"]["containers"], *template["spec"].get("initContainers", [])]:
            context = container["securityContext"]
            assert context["privileged"] is False, name
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"]["drop"] == ["ALL"], name


def test_containers_of_ours_write_to_their_volumes_alone() -> None:
    for name, _, container in _containers():
        assert container["securityContext"]["readOnlyRootFilesystem"] is True, name


def test_capabilities_are_those_that_the_fabric_needs() -> None:
    allowed = {"azure-nd-a100-v4": {"IPC_LOCK"}, "azure-nd-h100-v5": {"IPC_LOCK"}}
    for name, _, container in _containers():
        family = next((each for each in FAMILIES if name.startswith(each)), "")
        added = set(container["securityContext"]["capabilities"].get("add", []))
        assert added <= allowed.get(family, set()), name


def test_a_pod_runs_as_root_only_where_its_transport_cannot_do_without() -> None:
    for name, template in _pods():
        context = template["spec"]["securityContext"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        family = next(each for each in FAMILIES if name.startswith(each))
        may_be_root = profile(FAMILIES[family]).user == 0
        assert context["runAsNonRoot"] or (may_be_root and context["runAsUser"] == 0), name
        if context["runAsNonRoot"]:
            assert context["runAsUser"] == 10001, name


def test_nothing_is_the_hosts_but_what_the_transport_names() -> None:
    for name, template in _pods():
        spec = template["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(spec), name
        family = next(each for each in FAMILIES if name.startswith(each))
        known = profile(FAMILIES[family])
        paths = {each.path for each in known.host_paths}
        paths |= {each.path for sidecar in known.sidecars for each in sidecar.host_paths}
        assert {each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each} <= paths, name


def test_the_guard_alone_has_a_token_of_the_api_server() -> None:
    for name, template in _pods():
        is_guard = template["metadata"]["labels"].get("cloudrec/role") == "guard"
        assert template["spec"]["automountServiceAccountToken"] is is_guard, name
    roles = [each for _, found in _SETS.items() for each in found if each["kind"] == "Role"]
    for role in roles:
        assert "*" not in json.dumps(role["rules"])
        assert all("secrets" not in rule["resources"] for rule in role["rules"])


def test_there_is_no_secret_anywhere() -> None:
    for name, found in _SETS.items():
        for each in found:
            assert each["kind"] != "Secret", name
            assert _SECRET.search(json.dumps(each)) is None, (name, each["kind"])


def test_everything_is_labelled_as_ours() -> None:
    for name, found in _SETS.items():
        for each in [*found, *pod_templates(found)]:
            labels = each["metadata"]["labels"]
            assert labels["app.kubernetes.io/managed-by"] == "cloudrec", name
            assert labels["cloudrec/owner"] == "ann", name


def test_the_image_is_the_one_that_was_given_and_is_not_pulled_again() -> None:
    for name, _, container in _containers():
        assert container["image"] == IMAGE, name
        assert container["imagePullPolicy"] == "IfNotPresent", name


def test_devices_and_huge_pages_are_requested_as_they_are_limited() -> None:
    for name, _, container in _containers():
        requests, limits = container["resources"]["requests"], container["resources"]["limits"]
        assert limits["memory"], name
        assert all(requests[each] == value for each, value in limits.items()), name


@pytest.mark.parametrize("launcher", ["torchrun", "pytorchjob", "trainjob", "rayjob"])
def test_only_a_runs_own_pods_get_in(launcher: str) -> None:
    for family in FAMILIES:
        (policy,) = [each for each in objects(family, launcher) if each["kind"] == "NetworkPolicy"]
        own = {"podSelector": {"matchLabels": {"cloudrec/run": "dlrm"}}}
        first, *more = policy["spec"]["ingress"]
        assert first == {"from": [own]}
        if launcher == "rayjob":  # its operator asks the head how the job is doing, with the cluster's token
            (visitors,) = more
            assert visitors["ports"] == [{"protocol": "TCP", "port": 8265}]
        else:
            assert more == []
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        for rule in policy["spec"]["egress"][1:]:
            assert rule["ports"], "only among themselves may pods use any port"

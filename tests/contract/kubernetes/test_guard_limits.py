"""A cluster's guard before a real API server: the changes that it makes pass, all others are refused.

The stand-in evaluates no admission policy, so these tests run on a real control plane only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from cloudrec.app.guard import apply_guard
from cloudrec.keeper.managed.leader import Leader
from cloudrec.keeper.managed.pools import pool_views
from cloudrec.keeper.managed.runs import managed_runs, queue_run, release_run
from cloudrec.keeper.note import NAME
from cloudrec.keeper.tending import tend
from cloudrec.kubernetes.client.errors import DeniedError, KubeError
from cloudrec.kubernetes.client.target import DEAD_NODE
from cloudrec.kubernetes.manifests import guard_objects, run_objects
from cloudrec.kubernetes.topology import NAME as TOPOLOGY
from cloudrec.kubernetes.wishes import IGNORED, LEAVING, NODE_RUN, QUEUED
from cloudrec.launchers.kubernetes.submit import end_left_behind
from tests.contract.kubernetes.support import CONTROL_PLANE, Server, joined_server
from tests.contract.kubernetes.support_accounts import client_of
from tests.contract.kubernetes.support_guard import (
    CONTAINER,
    ESCALATIONS,
    GUARDING,
    IMAGE,
    LAUNCHERS,
    NODE,
    OF_A_NAMESPACE,
    OF_A_RUN,
    OF_THE_CLUSTER,
    OPERATORS,
    RBAC,
    READABLE,
    REPLACE,
    TEAM,
    Guarded,
    engine_of,
    named,
)
from tests.tallies import Tally
from tests.unit.kubernetes_manifests.support_matrix import profile, workload


@pytest.fixture(scope="module", params=[pytest.param(CONTROL_PLANE, marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with joined_server(request.getfixturevalue("real_server")) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(server: Server) -> Iterator[Guarded]:
    for operator in filter(None, LAUNCHERS.values()):
        server.serve_kinds(operator)
    target = server.target()
    with server.connect() as admin:
        for name in (server.namespace, TEAM):
            admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        admin.create(named("v1", "ServiceAccount", target.service_account, server.namespace))
        admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        for each in guard_objects(target, GUARDING):
            admin.apply(each)
        runs = {}
        for name in LAUNCHERS:
            found = run_objects(
                name, workload("kubernetes-cpu", run=name, image=IMAGE), target, profile(target)
            )
            for each in found:
                admin.apply(each)
            engine = engine_of(name)
            runs[name] = (engine.kind, name)
        with client_of(server, admin, NAME, server.namespace) as guard:
            guarded = Guarded(admin=admin, guard=guard, namespace=server.namespace, runs=runs)
            _await_the_policy(guarded)
            yield guarded
        for kind in (
            "ValidatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicy",
            "ClusterRoleBinding",
            "ClusterRole",
        ):
            admin.delete(kind, NAME)
        admin.delete("Node", NODE)
        for name in (server.namespace, TEAM):
            admin.delete("Namespace", name)


def _await_the_policy(guarded: Guarded) -> None:
    """Wait until the API server has compiled the new policy, which takes about a second."""
    guarded.pod("first", OF_A_RUN)
    deadline = time.monotonic() + 60
    while True:
        try:
            guarded.patch("Pod", "first", {"metadata": {"labels": {"a": "b"}}})
        except DeniedError:
            break
        guarded.admin.patch(
            "Pod", "first", {"metadata": {"labels": {"a": None}}}, namespace=guarded.namespace
        )
        assert time.monotonic() < deadline
        time.sleep(0.2)
    guarded.admin.delete("Pod", "first", namespace=guarded.namespace)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_guard_suspends_and_resumes_a_run(guarded: Guarded, launcher: str) -> None:
    kind, name = guarded.runs[launcher]
    engine = engine_of(launcher)
    for is_suspended, mark in ((True, "true"), (False, None)):
        change = {**engine.suspension(is_suspended=is_suspended), "metadata": {"annotations": {QUEUED: mark}}}
        guarded.patch(kind, name, change)
        found = guarded.admin.get(kind, name, namespace=guarded.namespace)
        assert found is not None
        assert engine.is_suspended(found) is is_suspended


def test_the_guard_ends_a_pod_and_forgets_preemptions(guarded: Guarded) -> None:
    guarded.pod("counted", OF_A_RUN, annotations={IGNORED: "3", DEAD_NODE: "replace"})
    guarded.patch("Pod", "counted", {"metadata": {"annotations": {IGNORED: None}}})
    pod = guarded.guard.get("Pod", "counted", namespace=guarded.namespace)
    assert pod is not None
    assert IGNORED not in pod["metadata"]["annotations"]
    deadline = time.monotonic() + 60
    while pod is not None:  # the scheduler may change it meanwhile; the guard tries again in a round
        end_left_behind(guarded.guard, pod, guarded.namespace)
        pod = guarded.guard.get("Pod", "counted", namespace=guarded.namespace)
        assert time.monotonic() < deadline
    tend(guarded.guard, guarded.namespace, print)


def test_the_guard_cordons_and_labels_nodes(guarded: Guarded) -> None:
    for leaves, run in ((True, "r"), (None, None)):
        change = {
            "metadata": {"annotations": {LEAVING: leaves and "true"}},
            "spec": {"unschedulable": leaves},
        }
        guarded.guard.patch("Node", NODE, change)
        guarded.guard.patch("Node", NODE, {"metadata": {"labels": {NODE_RUN: run}}})
    assert [each for each in guarded.guard.list("Node") if each["metadata"]["name"] == NODE]


def test_the_guard_keeps_its_notes(guarded: Guarded) -> None:
    for name in (NAME, TOPOLOGY):
        if guarded.admin.get("ConfigMap", name, namespace=guarded.namespace) is None:
            guarded.admin.create(named("v1", "ConfigMap", name, guarded.namespace, data={}))
        guarded.patch("ConfigMap", name, {"data": {"a": "b"}})
    guarded.patch("Lease", "cloudrec-keeper", {"spec": {"holderIdentity": "me"}})


@pytest.fixture(scope="module")
def victims(guarded: Guarded) -> Guarded:
    """A pod of a run, and a pod and a job of others in the same namespace."""
    guarded.pod("victim", OF_A_RUN)
    guarded.pod("theirs", {"app": "web"})
    template = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
    guarded.admin.create(
        named("batch/v1", "Job", "their-job", guarded.namespace, spec={"template": template})
    )
    return guarded


@pytest.mark.parametrize("path", ESCALATIONS)
def test_a_way_to_more_is_refused(victims: Guarded, path: str) -> None:
    with pytest.raises(DeniedError):
        ESCALATIONS[path](victims)


def test_without_the_policy_a_pod_of_a_run_gets_another_image(victims: Guarded) -> None:
    binding = victims.admin.get("ValidatingAdmissionPolicyBinding", NAME)
    assert binding is not None
    victims.pod("open", OF_A_RUN)
    victims.admin.delete("ValidatingAdmissionPolicyBinding", NAME)
    deadline = time.monotonic() + 60
    try:
        while True:
            try:
                victims.patch("Pod", "open", REPLACE)
                break
            except DeniedError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
    finally:
        victims.admin.create({**binding, "metadata": {"name": NAME, "labels": binding["metadata"]["labels"]}})
    while True:
        try:
            victims.patch("Pod", "open", {"metadata": {"labels": {"a": str(time.monotonic())}}})
        except DeniedError:
            return
        assert time.monotonic() < deadline
        time.sleep(0.2)


# Objects of other teams: version, kind, and fields that it must have.


def test_no_object_of_others_can_be_read_changed_or_deleted(guarded: Guarded) -> None:
    theirs = [
        (kind, named(version, kind, "theirs-too", space, **fields))
        for space in (TEAM, guarded.namespace)
        for version, kind, fields in OF_A_NAMESPACE
    ] + [
        (kind, named(version, kind, "cloudrec-test-theirs", **fields))
        for version, kind, fields in OF_THE_CLUSTER
    ]
    made = list[tuple[str, dict[str, Any]]]()
    try:
        for kind, manifest in theirs:
            space = (
                {"involvedObject": {"namespace": manifest["metadata"].get("namespace")}}
                if kind == "Event"
                else {}
            )
            guarded.admin.create({**manifest, **space})
            made.append((kind, manifest))
        assert len(made) >= 50
        open_ = [
            f"{deed} {kind} of {manifest['metadata'].get('namespace', 'the cluster')}"
            for kind, manifest in made
            for deed in ("read", "change", "delete")
            if not _is_refused(guarded, deed, kind, manifest["metadata"])
        ]
        assert sorted(open_) == sorted(
            f"read {kind} of {guarded.namespace}"
            for kind, manifest in made
            if kind in READABLE and manifest["metadata"].get("namespace") == guarded.namespace
        )
        for kind, manifest in made:
            metadata = manifest["metadata"]
            found = guarded.admin.get(kind, metadata["name"], namespace=metadata.get("namespace", ""))
            assert found is not None, kind
            assert "theirs" not in (found["metadata"].get("annotations") or {}), kind
    finally:
        for kind, manifest in made:
            if "namespace" not in manifest["metadata"]:
                guarded.admin.delete(kind, manifest["metadata"]["name"])


def _is_refused(guarded: Guarded, deed: str, kind: str, metadata: dict[str, Any]) -> bool:
    name, namespace = metadata["name"], metadata.get("namespace", "")
    try:
        if deed == "read":
            guarded.guard.get(kind, name, namespace=namespace)
        elif deed == "change":
            guarded.guard.patch(
                kind, name, {"metadata": {"annotations": {"theirs": "mine"}}}, namespace=namespace
            )
        else:
            guarded.guard.delete(kind, name, namespace=namespace)
    except DeniedError:
        return True
    except KubeError as error:
        raise AssertionError(f"{deed} {kind}: {error.message}") from error
    return False


def _flows(guarded: Guarded) -> None:
    """What the guard and the keeper ask of the API server, by their own code."""
    guard, namespace = guarded.guard, guarded.namespace
    leader = Leader(kube=guard, namespace=namespace, identity="test")
    assert leader.leads()
    note = guard.get("ConfigMap", NAME, namespace=namespace)
    assert note is not None
    guard.patch("ConfigMap", NAME, {"data": note["data"]}, namespace=namespace)
    runs = managed_runs(guard, namespace)
    assert {run.engine.kind for run in runs} == {kind for kind, _ in guarded.runs.values()}
    for run in runs:
        queue_run(guard, run, namespace)
        release_run(guard, run, namespace)
    tend(guard, namespace, print)
    pool_views(guard, "pool", [], {})
    guard.patch("Node", NODE, {"metadata": {"labels": {NODE_RUN: "r"}}})
    for verb, subresource in (("get", "log"), ("patch", "status"), ("delete", "")):
        if not guard.may(verb, "Pod", namespace=namespace, subresource=subresource):
            raise DeniedError(f"{verb} pods/{subresource}")
    leader.release()


def _removals(rules: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each verb of each rule, and the rules without it."""
    for number, rule in enumerate(rules):
        for verb in rule["verbs"]:
            left = {**rule, "verbs": [each for each in rule["verbs"] if each != verb]}
            kept = [left] if left["verbs"] else []
            yield f"{verb} {rule['resources'][0]}", [*rules[:number], *kept, *rules[number + 1 :]]


def test_each_verb_that_the_guard_has_is_needed(guarded: Guarded, tally: Tally) -> None:
    since = datetime.fromtimestamp(guarded.guard.now_s() - 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    needed = list[str]()
    for kind, space in (("Role", guarded.namespace), ("ClusterRole", "")):
        role = guarded.admin.get(kind, NAME, namespace=space)
        assert role is not None
        for what, rules in _removals(role["rules"]):
            # A pod that trains again after preemptions, which are to be forgotten.
            guarded.pod("settled", OF_A_RUN, annotations={IGNORED: "3"})
            conditions = {"status": {"conditions": [ready]}}
            guarded.admin.patch(
                "Pod", "settled", conditions, namespace=guarded.namespace, subresource="status"
            )
            guarded.admin.patch(kind, NAME, {"rules": rules}, namespace=space)
            deadline = time.monotonic() + 20
            try:
                while True:  # until the server's authorizer has seen the role
                    try:
                        _flows(guarded)
                    except DeniedError:
                        needed.append(what)
                        break
                    assert time.monotonic() < deadline, what
                    guarded.admin.patch(
                        "Pod",
                        "settled",
                        {"metadata": {"annotations": {IGNORED: "3"}}},
                        namespace=guarded.namespace,
                    )
            finally:
                guarded.admin.patch(kind, NAME, {"rules": role["rules"]}, namespace=space)
                guarded.admin.delete("Pod", "settled", namespace=guarded.namespace, grace_s=0)
    tally(f"{len(needed)} verbs of the guard in Kubernetes: without any of them, a flow is refused")
    assert len(needed) == 22


def test_without_the_permission_for_policies_the_guard_is_installed_with_a_warning(
    server: Server, guarded: Guarded
) -> None:
    rules = [
        {"apiGroups": [group], "resources": ["*"], "verbs": ["*"]}
        for group in ("", "batch", "coordination.k8s.io", "networking.k8s.io", RBAC, *OPERATORS)
    ]
    space = guarded.namespace
    guarded.admin.create(named("v1", "ServiceAccount", "deployer", space))
    guarded.admin.create(named(f"{RBAC}/v1", "ClusterRole", "deployer", rules=rules))
    subject = {"kind": "ServiceAccount", "name": "deployer", "namespace": space}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "deployer"}
    binding = named(f"{RBAC}/v1", "ClusterRoleBinding", "deployer", roleRef=role, subjects=[subject])
    guarded.admin.create(binding)
    said = list[str]()
    try:
        with client_of(server, guarded.admin, "deployer", space) as deployer:
            made = apply_guard(deployer, guard_objects(server.target(), GUARDING), said.append)
    finally:
        for kind in ("ClusterRoleBinding", "ClusterRole"):
            guarded.admin.delete(kind, "deployer")
    assert made[-1]["kind"] == "CronJob"
    (warning,) = said
    assert warning.startswith(
        "warning: the guard's policy is not applied, so it may change more than it needs: "
    )
    assert "ValidatingAdmissionPolicy cloudrec-guard" in warning


def test_the_account_of_runs_has_no_permission(server: Server, guarded: Guarded) -> None:
    with client_of(server, guarded.admin, server.target().service_account, guarded.namespace) as run:
        for kind in ("Pod", "Job", "Secret", "ConfigMap", "Node", "PyTorchJob", "Namespace"):
            space = {} if kind in ("Node", "Namespace") else {"namespace": guarded.namespace}
            for verb in ("get", "list", "create", "patch", "delete"):
                assert not run.may(verb, kind, **space), (verb, kind)

"""What a cluster's guard may change in an object: the part of its permissions that RBAC cannot express.

RBAC knows kinds, verbs and names. The guard needs `patch` on pods, to forget the preemptions of a pod. That
alone would also let it change a pod's image, and so act with the identity of a run. An admission policy
(stable since Kubernetes 1.30; kubernetes.io, "Validating Admission Policy") compares the object before and
after each request of the guard, and allows the fields that the guard writes.

The API server evaluates it only for the guard's service account. It is an object of the whole cluster, so
there is one only where cloudrec has created the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.wishes import IGNORED, LEAVING, NODE_RUN, QUEUED

if TYPE_CHECKING:
    from collections.abc import Mapping

# Fields of `metadata` that the API server writes itself, and those that have a rule.
_METADATA = ("annotations", "labels", "resourceVersion", "managedFields", "generation")
_IS_POD, _IS_NODE = ('request.resource.resource == "pods"', 'request.resource.resource == "nodes"')
_IS_DELETED = 'request.operation == "DELETE"'


def policy_spec(*, account: str, run_label: str, runs: Mapping[str, str]) -> dict[str, Any]:
    """Return the `spec` of the ValidatingAdmissionPolicy.

    Args:
        account: the guard's user name, system:serviceaccount:NAMESPACE:NAME.
        run_label: the label that all pods and objects of runs have.
        runs: the resources of runs by API group, such as jobs by batch.
    """
    core: dict[str, Any] = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["UPDATE", "DELETE"]}
    core["resources"] = ["pods", "pods/status", "nodes"]
    changed = [
        {"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource]}
        for group, resource in runs.items()
    ]
    user = {"name": "by-the-guard", "expression": f'request.userInfo.username == "{account}"'}
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [core, *changed]},
        "matchConditions": [user],
        "variables": _variables(),
        "validations": _validations(run_label),
    }


def binding_spec(policy: str) -> dict[str, Any]:
    """Return the `spec` of the binding, without which a policy has no effect.

    Args:
        policy: the policy's name.
    """
    return {"policyName": policy, "validationActions": ["Deny"]}


def _variables() -> list[dict[str, str]]:
    """Return both states of each part that a rule compares; a part that is absent is an empty map."""
    parts = {
        "labels": "metadata.labels",
        "annotations": "metadata.annotations",
        "policy": "spec.runPolicy",
    }
    return [
        {"name": name, "expression": f"has({thing}.{path}) ? {thing}.{path} : {{}}"}
        for part, path in parts.items()
        for name, thing in ((part, "object"), (f"{part}Before", "oldObject"))
    ]


def _validations(run_label: str) -> list[dict[str, str]]:
    suspension = (
        f"{_same('object.spec', 'oldObject.spec', 'suspend', 'runPolicy')}"
        f" && {_same('variables.policy', 'variables.policyBefore', 'suspend')}"
    )
    labels = ("variables.labels", "variables.labelsBefore")
    annotations = ("variables.annotations", "variables.annotationsBefore")
    return [
        _validation(
            f'{_IS_NODE} || "{run_label}" in variables.labelsBefore',
            "the guard changes and deletes objects of runs only",
        ),
        _validation(
            _unless_deleted(
                pod="object.spec == oldObject.spec",
                node=_same("object.spec", "oldObject.spec", "unschedulable"),
                run=suspension,
            ),
            "the guard changes no pod's spec, cordons nodes, and suspends or resumes runs",
        ),
        _validation(
            _unless_deleted(pod=_same(*labels), node=_same(*labels, NODE_RUN), run=_same(*labels)),
            f"the guard changes no label but {NODE_RUN} of nodes",
        ),
        _validation(
            _unless_deleted(
                pod=_same(*annotations, IGNORED),
                node=_same(*annotations, LEAVING),
                run=_same(*annotations, QUEUED),
            ),
            f"the guard changes no annotation but {IGNORED} of pods, {LEAVING} of nodes and {QUEUED} of runs",
        ),
        _validation(
            f"{_IS_DELETED} || ({_same('object.metadata', 'oldObject.metadata', *_METADATA)})",
            "the guard changes no owner and no finalizer",
        ),
    ]


def _validation(expression: str, message: str) -> dict[str, str]:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def _unless_deleted(*, pod: str, node: str, run: str) -> str:
    """Return the rule of a change, by the kind of the object."""
    return f"{_IS_DELETED} || ({_IS_POD} ? ({pod}) : {_IS_NODE} ? ({node}) : ({run}))"


def _same(after: str, before: str, *free: str) -> str:
    """Return the expression that two maps differ at most in the keys `free`."""
    keys = ", ".join(f'"{key}"' for key in free)
    return (
        f"{after}.all(k, k in [{keys}] || (k in {before} && {after}[k] == {before}[k]))"
        f" && {before}.all(k, k in [{keys}] || k in {after})"
    )

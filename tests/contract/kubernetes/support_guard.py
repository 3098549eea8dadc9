"""A cluster with a guard, the ways by which its identity could get more, and what others have beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cloudrec.keeper.note import NAME
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.manifests import Guarding
from cloudrec.kubernetes.manifests.names import CLUSTER, MANAGED_BY, MANAGER, ROLE, RUN, TRAINER
from cloudrec.launchers import launchers
from cloudrec.launchers.kubernetes.launcher import KubeLauncher

IMAGE = "registry.example/trainer@sha256:" + "5c" * 32
OTHER_IMAGE = "registry.example/other@sha256:" + "6d" * 32
LAUNCHERS = {
    "torchrun": "",
    "pytorchjob": "pytorchjob",
    "trainjob": "trainjob",
    "jobset": "jobset",
    "rayjob": "rayjob",
}
NODE = "limits-node"
OF_A_RUN = {MANAGED_BY: MANAGER, CLUSTER: "c", RUN: "r", ROLE: TRAINER}
TEAM = "cloudrec-test-team"
RBAC = "rbac.authorization.k8s.io"
OPERATORS = ("kubeflow.org", "trainer.kubeflow.org", "jobset.x-k8s.io", "ray.io")
GUARDING = Guarding(cluster="c", owner="ann", image=IMAGE, meters=True, manages=True)


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A cluster with a guard, runs of each launcher, and what others have.

    Attributes:
        admin: a client that may do everything.
        guard: a client with the guard's token.
        namespace: the namespace of the guard and the runs.
        runs: kind and name of the run of each launcher.
    """

    admin: Kube
    guard: Kube
    namespace: str
    runs: dict[str, tuple[str, str]]

    def pod(self, name: str, labels: dict[str, str], **metadata: Any) -> None:
        """Create a pod that no node takes."""
        container = {"name": "main", "image": IMAGE}
        self.admin.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": self.namespace, "labels": labels, **metadata},
                "spec": {
                    "containers": [container],
                    "nodeSelector": {"no": "such"},
                    "terminationGracePeriodSeconds": 0,
                },
            }
        )

    def patch(self, kind: str, name: str, change: Any, **more: Any) -> None:
        """Patch an object as the guard, in its namespace where it has one."""
        self.guard.patch(kind, name, change, namespace=self.namespace, **more)


def engine_of(name: str) -> Any:
    launcher = launchers()[name]
    assert isinstance(launcher, KubeLauncher)
    return launcher.engine


def named(version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


Attempt = Callable[[Guarded], object]


def _cluster(kind: str, name: str, change: Any) -> Attempt:
    return lambda guarded: guarded.guard.patch(kind, name, change)


def _remove(kind: str) -> Attempt:
    return lambda guarded: guarded.guard.delete(kind, NAME)


def _set(kind: str, name: str, change: Any, **more: Any) -> Attempt:
    return lambda guarded: guarded.patch(kind, name, change, **more)


def _of_run(launcher: str, change: Any) -> Attempt:
    return lambda guarded: guarded.patch(*guarded.runs[launcher], change)


def _call(method: str, path: str, body: dict[str, Any] | None = None) -> Attempt:
    return lambda guarded: guarded.guard.raw(method, path.format(space=guarded.namespace), body=body)


def _make(version: str, kind: str, space: str = "{space}", **fields: Any) -> Attempt:
    return lambda guarded: guarded.guard.create(
        named(version, kind, "mine", space.format(space=guarded.namespace), **fields)
    )


CONTAINER = {"name": "main", "image": OTHER_IMAGE}
_HOST_POD = {
    "containers": [CONTAINER],
    "hostPID": True,
    "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
}
_BIND: dict[str, Any] = {
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": "default"}],
}
_ALL = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
_IN, _POD = "/api/v1/namespaces/{space}", "/api/v1/namespaces/{space}/pods"
REPLACE = [{"op": "replace", "path": "/spec/containers/0/image", "value": OTHER_IMAGE}]
_TOLERATE = [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}]
_EXEC = "?container=main&command=id&stdout=true"
# Ways from the guard's identity to another one, to another's work, or to more nodes.
ESCALATIONS: dict[str, Attempt] = {
    # Through the objects that it may change: refused by the policy.
    "another image in a pod of a run": _set("Pod", "victim", REPLACE),
    "a deadline for a pod of a run": _set("Pod", "victim", {"spec": {"activeDeadlineSeconds": 1}}),
    "a toleration for a pod of a run": _set("Pod", "victim", _TOLERATE),
    "a label that takes a pod out of its network policy": _set(
        "Pod", "victim", {"metadata": {"labels": {RUN: "x"}}}
    ),
    "an annotation that other programs read from a pod": _set(
        "Pod", "victim", {"metadata": {"annotations": {"a": "b"}}}
    ),
    "an owner with which a pod is deleted": _set(
        "Pod",
        "victim",
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}},
    ),
    "a finalizer with which a pod stays": _set(
        "Pod", "victim", {"metadata": {"finalizers": ["example.com/stay"]}}
    ),
    "another image in a pod of others": _set("Pod", "theirs", REPLACE),
    "a pod of others that counts as failed": _set(
        "Pod", "theirs", {"status": {"phase": "Failed"}}, subresource="status"
    ),
    "the end of a pod of others": lambda guarded: guarded.guard.delete(
        "Pod", "theirs", namespace=guarded.namespace
    ),
    "a job of others suspended": _set("Job", "their-job", {"spec": {"suspend": True}}),
    "more pods of a job": _of_run("torchrun", {"spec": {"parallelism": 1}}),
    "a job that is deleted after its end": _of_run("torchrun", {"spec": {"ttlSecondsAfterFinished": 1}}),
    "a job of another cluster": _of_run("torchrun", {"metadata": {"labels": {CLUSTER: "other"}}}),
    "other pods of a PyTorchJob": _of_run(
        "pytorchjob",
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [CONTAINER]}}}}}},
    ),
    "a PyTorchJob whose pods are kept": _of_run(
        "pytorchjob", {"spec": {"runPolicy": {"cleanPodPolicy": "None"}}}
    ),
    "other pods of a TrainJob": _of_run(
        "trainjob", {"spec": {"runtimePatches": [{"manager": "example.com/mine"}]}}
    ),
    "other pods of a JobSet": _of_run("jobset", {"spec": {"replicatedJobs": []}}),
    "another command of a RayJob": _of_run("rayjob", {"spec": {"entrypoint": "id"}}),
    "more workers of a RayJob": _of_run("rayjob", {"spec": {"rayClusterSpec": None}}),
    "a taint of a node": _cluster(
        "Node", NODE, {"spec": {"taints": [{"key": "a", "value": "b", "effect": "NoExecute"}]}}
    ),
    "a node without its taints": _cluster("Node", NODE, {"spec": {"taints": None, "podCIDR": "10.9.0.0/24"}}),
    "a label that moves other pods to a node": _cluster(
        "Node", NODE, {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}
    ),
    "an annotation with which an autoscaler keeps a node": _cluster(
        "Node",
        NODE,
        {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}}},
    ),
    # Refused by RBAC.
    "a node deleted": lambda guarded: guarded.guard.delete("Node", NODE),
    "the status of a node": _call(
        "PUT", f"/api/v1/nodes/{NODE}/status", {"apiVersion": "v1", "kind": "Node"}
    ),
    "the kubelet of a node": _call("GET", f"/api/v1/nodes/{NODE}/proxy/pods"),
    "a command in a pod of a run": _call("POST", f"{_POD}/victim/exec{_EXEC}"),
    "a debug container in a pod of a run": _set(
        "Pod",
        "victim",
        {"spec": {"ephemeralContainers": [{"name": "d", "image": OTHER_IMAGE}]}},
        subresource="ephemeralcontainers",
    ),
    "a port of a pod of a run": _call("POST", f"{_POD}/victim/portforward?ports=80"),
    "a pod with the identity of the runs": _make(
        "v1", "Pod", spec={"containers": [CONTAINER], "serviceAccountName": "trainer"}
    ),
    "a pod with the disk of a node": _make("v1", "Pod", spec=_HOST_POD),
    "a job": _make(
        "batch/v1", "Job", spec={"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}}
    ),
    "a pod in kube-system": _make("v1", "Pod", "kube-system", spec=_HOST_POD),
    "a token of the runs": _call(
        "POST",
        f"{_IN}/serviceaccounts/trainer/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    ),
    "a token of kube-system": _call(
        "POST",
        "/api/v1/namespaces/kube-system/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    ),
    "a Secret with a token": _make("v1", "Secret", type="kubernetes.io/service-account-token"),
    "the Secrets of its namespace": _call("GET", f"{_IN}/secrets"),
    "the Secrets of all namespaces": _call("GET", "/api/v1/secrets"),
    "the identity of its service account": _set(
        "ServiceAccount", NAME, {"metadata": {"annotations": {"a": "b"}}}
    ),
    "the identity of the runs' service account": _set(
        "ServiceAccount", "trainer", {"metadata": {"annotations": {"a": "b"}}}
    ),
    "more rules in its role": _set("Role", NAME, {"rules": _ALL}),
    "a role with all rights": _make(f"{RBAC}/v1", "Role", rules=_ALL),
    "a binding to cluster-admin": _make(f"{RBAC}/v1", "RoleBinding", **_BIND),
    "a binding to cluster-admin everywhere": _make(f"{RBAC}/v1", "ClusterRoleBinding", "", **_BIND),
    "more rules in its cluster role": _cluster("ClusterRole", NAME, {"rules": _ALL}),
    "the end of the policy": _remove("ValidatingAdmissionPolicy"),
    "the end of the policy's binding": _remove("ValidatingAdmissionPolicyBinding"),
    "a webhook that sees all objects": _make(
        "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "", webhooks=[]
    ),
    "a new schedule of the guard": _set("CronJob", NAME, {"spec": {"schedule": "* * * * *"}}),
    "the configuration of others": _set("ConfigMap", "kube-root-ca.crt", {"data": {"a": "b"}}),
    "a certificate of a node": _call("GET", "/apis/certificates.k8s.io/v1/certificatesigningrequests"),
    "a disk of the cluster": _call("GET", "/api/v1/persistentvolumes"),
    "the limits of the namespace": _call("GET", f"{_IN}/resourcequotas"),
    "the labels of the namespace, with its Pod Security": lambda guarded: guarded.guard.patch(
        "Namespace",
        guarded.namespace,
        {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}},
    ),
}


OF_A_NAMESPACE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("v1", "Secret", {"data": {"key": "c2VjcmV0"}}),
    ("v1", "ConfigMap", {"data": {"a": "b"}}),
    ("v1", "ServiceAccount", {}),
    ("v1", "Service", {"spec": {"ports": [{"port": 80}]}}),
    (
        "v1",
        "PersistentVolumeClaim",
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    ),
    ("v1", "ResourceQuota", {"spec": {"hard": {"pods": "20"}}}),
    (
        "v1",
        "LimitRange",
        {"spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "9Gi"}}]}},
    ),
    ("v1", "Event", {"involvedObject": {}}),
    ("v1", "Pod", {"spec": {"containers": [CONTAINER]}}),
    (
        "batch/v1",
        "Job",
        {"spec": {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}}},
    ),
    (
        "batch/v1",
        "CronJob",
        {
            "spec": {
                "schedule": "0 0 1 1 *",
                "jobTemplate": {
                    "spec": {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}}
                },
            }
        },
    ),
    (
        "apps/v1",
        "Deployment",
        {
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}},
            }
        },
    ),
    (
        "apps/v1",
        "StatefulSet",
        {
            "spec": {
                "replicas": 0,
                "serviceName": "s",
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}},
            }
        },
    ),
    (
        "apps/v1",
        "DaemonSet",
        {
            "spec": {
                "selector": {"matchLabels": {"a": "c"}},
                "template": {
                    "metadata": {"labels": {"a": "c"}},
                    "spec": {"containers": [CONTAINER], "nodeSelector": {"no": "such"}},
                },
            }
        },
    ),
    (
        "policy/v1",
        "PodDisruptionBudget",
        {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
    ),
    ("networking.k8s.io/v1", "NetworkPolicy", {"spec": {"podSelector": {}}}),
    (
        "networking.k8s.io/v1",
        "Ingress",
        {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
    ),
    (f"{RBAC}/v1", "Role", {"rules": []}),
    (f"{RBAC}/v1", "RoleBinding", {"roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "r"}}),
    ("coordination.k8s.io/v1", "Lease", {"spec": {"holderIdentity": "them"}}),
    ("kubeflow.org/v1", "PyTorchJob", {"spec": {"pytorchReplicaSpecs": {}}}),
    ("jobset.x-k8s.io/v1alpha2", "JobSet", {"spec": {}}),
    ("ray.io/v1", "RayJob", {"spec": {"entrypoint": "id"}}),
)
OF_THE_CLUSTER: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "v1",
        "PersistentVolume",
        {
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/x"},
            }
        },
    ),
    ("v1", "Namespace", {}),
    ("storage.k8s.io/v1", "StorageClass", {"provisioner": "example.com/disk"}),
    ("scheduling.k8s.io/v1", "PriorityClass", {"value": 10}),
    (f"{RBAC}/v1", "ClusterRole", {"rules": []}),
    (f"{RBAC}/v1", "ClusterRoleBinding", {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "r"}}),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", {"webhooks": []}),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        {"spec": {"policyName": "p", "validationActions": ["Audit"]}},
    ),
)
# The guard may read these in its namespace: it ends the pods of dead nodes by what it reads.
READABLE = {"Pod"}

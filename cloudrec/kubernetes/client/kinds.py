"""The API paths of kinds, and the types of their fields.

The paths of well-known kinds are in a table, others are read from the server once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of object.

    Attributes:
        version: its apiVersion: v1, apps/v1.
        name: its name in objects: Pod.
        plural: its name in paths: pods.
        namespaced: whether its objects have a namespace.
    """

    version: str
    name: str
    plural: str
    namespaced: bool = True

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of one object, or of all; without a namespace, of all namespaces."""
        root = f"/apis/{self.version}" if "/" in self.version else f"/api/{self.version}"
        place = f"/namespaces/{quote(namespace, safe='')}" if namespace and self.namespaced else ""
        of = f"/{quote(name, safe='')}" if name else ""
        return f"{root}{place}/{self.plural}{of}" + (f"/{subresource}" if subresource else "")


_CORE = "ConfigMap Event PersistentVolumeClaim Pod ResourceQuota Secret Service ServiceAccount LimitRange"
_ADMISSION = (
    "MutatingWebhookConfiguration ValidatingWebhookConfiguration"
    " ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"
)
_KNOWN = {
    "v1": (_CORE, "Namespace Node PersistentVolume"),
    "apps/v1": ("ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet", ""),
    "batch/v1": ("CronJob Job", ""),
    "policy/v1": ("PodDisruptionBudget", ""),
    "networking.k8s.io/v1": ("Ingress", "IngressClass"),
    "rbac.authorization.k8s.io/v1": ("Role RoleBinding", "ClusterRole ClusterRoleBinding"),
    "scheduling.k8s.io/v1": ("", "PriorityClass"),
    "storage.k8s.io/v1": ("", "CSIDriver StorageClass"),
    "apiextensions.k8s.io/v1": ("", "CustomResourceDefinition"),
    "admissionregistration.k8s.io/v1": ("", _ADMISSION),
    "coordination.k8s.io/v1": ("Lease", ""),
    "kubeflow.org/v1": ("PyTorchJob", ""),
    "trainer.kubeflow.org/v1alpha1": ("TrainJob TrainingRuntime", "ClusterTrainingRuntime"),
    "ray.io/v1": ("RayJob RayCluster", ""),
    "jobset.x-k8s.io/v1alpha2": ("JobSet", ""),
}
_IRREGULAR = {"Ingress": "ingresses", "IngressClass": "ingressclasses", "StorageClass": "storageclasses",
              "PriorityClass": "priorityclasses", "NetworkPolicy": "networkpolicies",
              "ValidatingAdmissionPolicy": "validatingadmissionpolicies"}  # fmt: skip


def _kind(version: str, name: str, *, namespaced: bool) -> Kind:
    plural = _IRREGULAR.get(name, f"{name.lower()}s")
    return Kind(version=version, name=name, plural=plural, namespaced=namespaced)


_BY_HEART = [
    _kind(version, name, namespaced=namespaced)
    for version, groups in _KNOWN.items()
    for namespaced, names in zip((True, False), groups, strict=True)
    for name in names.split()
] + [_kind("networking.k8s.io/v1", "NetworkPolicy", namespaced=True)]


class Kinds:
    """The kinds of one server; a kind that is not in the table is read when it is first used."""

    def __init__(self, read: Callable[[str], Mapping[str, Any] | None]) -> None:
        """Take `read`, which returns the document at a path of the API, or None if there is none."""
        self._read = read
        self._known = {(kind.version, kind.name): kind for kind in _BY_HEART}

    def named(self, name: str) -> Kind:
        """Return the kind of a name such as Pod or apps/v1/DaemonSet; UsageError if there is none."""
        version, _, short = name.rpartition("/")
        if version:
            return self.of(version, short)
        # Well-known kinds need no call of the server.
        found = [kind for kind in _BY_HEART if kind.name == name]
        if not found:
            raise UsageError(f"{name!r} is no well-known kind", remedy="write GROUP/VERSION/KIND")
        return found[0]

    def of(self, version: str, name: str) -> Kind:
        """Return a kind of an apiVersion; UsageError if the cluster has none of that name."""
        found = self._known.get((version, name)) or self._served_by(version).get(name)
        if found is None:
            raise UsageError(
                f"the cluster has no kind {name} of {version}", remedy="install the add-on that defines it"
            )
        self._known[version, name] = found
        return found

    def has(self, name: str) -> bool:
        """Return whether the server serves a kind, named as for `named`."""
        version, _, short = name.rpartition("/")
        return short in self._served_by(version or self.named(name).version)

    def listable(self) -> list[Kind]:
        """Return each kind whose objects can be listed, in the version that its group prefers."""
        found: dict[tuple[str, str], Kind] = {}
        for version in self._versions():
            for entry in self._entries(version):
                if "list" in entry.get("verbs", ()):
                    found.setdefault((version.rpartition("/")[0], entry["name"]), _served(version, entry))
        return list(found.values())

    def _versions(self) -> list[str]:
        """Return every apiVersion that is served, the preferred one of each group first."""
        found = ["v1"]
        for group in (self._read("/apis") or {}).get("groups") or ():
            preferred = (group.get("preferredVersion") or {}).get("groupVersion")
            served = [each["groupVersion"] for each in group["versions"]]
            # Several versions of a group serve the same objects; the first one that is listed counts.
            found += [*filter(preferred.__eq__, served), *filter(preferred.__ne__, served)]
        return found

    def _served_by(self, version: str) -> dict[str, Kind]:
        return {entry["kind"]: _served(version, entry) for entry in self._entries(version)}

    def _entries(self, version: str) -> list[Mapping[str, Any]]:
        answer = self._read(f"/apis/{version}" if "/" in version else f"/api/{version}") or {}
        return [entry for entry in answer.get("resources") or [] if "/" not in entry["name"]]


def _served(version: str, entry: Mapping[str, Any]) -> Kind:
    return Kind(version=version, name=entry["kind"], plural=entry["name"], namespaced=entry["namespaced"])


# The types of the fields that cloudrec reads, by the API's conventions
# (https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md).
# A field may be left out or null, except those with a ! (which the API's schema requires), and the name in an
# object's metadata. A rule is a type; or in braces the fields of an object, of which "" means any; or in
# brackets a list's elements.
_NAMED = [{"name!": str}]
_TEXTS = {"": str}
_META = {
    **dict.fromkeys(("name", "namespace", "uid", "resourceVersion", "continue"), str),
    **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), str),
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "ownerReferences": [dict.fromkeys(("kind!", "name!", "uid!", "apiVersion!"), str)],
}
_RESOURCES = {"limits": dict, "requests": dict, "claims": list}
_CONTAINERS = [{"name!": str, "image": str, "resources": _RESOURCES, "env": _NAMED, "volumeMounts": _NAMED}]
_DICTS = [dict]
_SIZES = {"": (str, int)}
_POD = {
    "containers": _CONTAINERS,
    "initContainers": _CONTAINERS,
    **dict.fromkeys(("nodeName", "providerID"), str),
    "taints": _DICTS,
    "tolerations": _DICTS,
    "volumes": _NAMED,
    "nodeSelector": dict,  # of texts in a pod, of lists in a ResourceSlice
}
_RAN = {"": {"reason": str, "message": str, "exitCode": int, "startedAt": str, "finishedAt": str}}
_STATES = [{"name!": str, "restartCount": int, "state": _RAN, "lastState": _RAN}]
_CONDITION = dict.fromkeys(("type!", "status!", "reason", "message", "lastTransitionTime"), str)
_OBJECT = {
    **dict.fromkeys(("kind", "apiVersion"), str),
    "metadata": _META,
    "spec": {**_POD, "template": {"metadata": _META, "spec": _POD}},
    "status": {
        "containerStatuses": _STATES,
        "initContainerStatuses": _STATES,
        **dict.fromkeys(("phase", "reason", "message", "podIP", "startTime", "completionTime"), str),
        "capacity": _SIZES,
        "allocatable": _SIZES,
        "conditions": [_CONDITION],
        "addresses": [{"type": str, "address": str}],
    },
}
_VERSIONS = [{"groupVersion!": str}]
_KINDS: dict[str, Any] = {
    "resources": [{"kind!": str, "name!": str, "namespaced!": bool, "verbs": [str]}],
    "groups": [{"name!": str, "versions!": _VERSIONS, "preferredVersion": {"groupVersion": str}}],
}
_OBJECTS: dict[str, Any] = {**_OBJECT, "items": [_OBJECT]}
_OTHERS: dict[str, Any] = {"metadata": _META, "items": [{"metadata": _META}]}
# The groups whose specs and states cloudrec reads. Other groups may give the same fields other types.
_READ: tuple[str, ...] = (
    "/api/v1/",
    "/apis/apps/",
    "/apis/batch/",
    "/apis/jobset.",
    "/apis/kubeflow.",
    "/apis/trainer.",
)
_READ += ("/apis/ray.", "/apis/kueue.", "/apis/resource.k8s.io/")
_REVIEWS = "/apis/authorization.k8s.io/v1/"
_REVIEW: dict[str, Any] = {"status!": {"allowed!": bool, "reason": str}}
# A review of rules lists what an account may do. The API server always sends both lists.
_RULE = {"verbs!": [str]}
_RULES: dict[str, Any] = {"status!": {"resourceRules!": [_RULE], "nonResourceRules!": [_RULE]}}
_MOST_OF_GROUP = 3  # slashes in the path of a group's version, which answers with its kinds


def check_answer(document: object, path: str, form: str) -> None:
    """Raise ValueError for a field of another type, or an object without a name.

    Args:
        document: an answer.
        path: what was asked for.
        form: "object" for one that has a name, "list" for a list of such; empty for others, such as a review.
    """
    is_kinds = path.rstrip("/").count("/") <= _MOST_OF_GROUP and not path.startswith("/api/v1/")
    is_review = path.startswith(_REVIEWS)
    if not isinstance(document, dict) or (form == "list" and "items" not in document):
        if form or is_kinds or is_review:
            raise ValueError(f"it is no {form or 'object'}")
        return
    if is_review:
        _check(document, _RULES if path.endswith("rulesreviews") else _REVIEW, "")
        return
    if not form and document.get("kind") == "Status":  # its field of that name is a word
        return
    _check(document, _KINDS if is_kinds else _OBJECTS if path.startswith(_READ) else _OTHERS, "")
    for each in (document,) if form == "object" else document.get("items") or ():
        if not (each.get("metadata") or {}).get("name"):
            raise ValueError("an object in it has no name")


def _check(value: object, wanted: Any, where: str) -> None:  # noqa: ANN401 - see above
    if value is None:
        return
    kind = type(wanted) if isinstance(wanted, dict | list) else wanted
    if not isinstance(value, kind):
        raise ValueError(f"{where[1:] or 'it'} is of the type {type(value).__name__}")  # noqa: TRY004 - as JSON's
    if isinstance(wanted, list) and isinstance(value, list):
        for each in value:
            if each is None:
                raise ValueError(f"{where[1:]} has an empty element")
            _check(each, wanted[0], where)
    if isinstance(wanted, dict) and isinstance(value, dict):
        for name, rule in wanted.items():
            if name.endswith("!") and value.get(name[:-1]) is None:
                raise ValueError(f"{where[1:]} has no {name[:-1]}")
            for key in value if not name else [name.rstrip("!")]:
                _check(value.get(key), rule, f"{where}.{key}")

"""The types of the fields that cloudrec reads in every kind's objects, by the API's conventions.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
A field may be left out or null, except those with a ! (which the API's schema requires), and the name in an
object's metadata.
"""

from __future__ import annotations

from typing import Any

# A type; or in braces the fields of an object, of which "" means any; or in brackets a list's elements.
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
_MOST_OF_GROUP = 3  # slashes in the path of a group's version, which answers with its kinds


def check(document: object, path: str, form: str) -> None:
    """Raise ValueError for a field of another type, or an object without a name.

    Args:
        document: an answer.
        path: what was asked for.
        form: "object" for one that has a name, "list" for a list of such; empty for others, such as a review.
    """
    if not isinstance(document, dict) or (form == "list" and "items" not in document):
        if form:
            raise ValueError(f"it is no {form}")
        return
    if not form and document.get("kind") == "Status":  # its field of that name is a word
        return
    is_kinds = path.rstrip("/").count("/") <= _MOST_OF_GROUP and not path.startswith("/api/v1/")
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

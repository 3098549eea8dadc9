"""Builds the requests of the recorded script: one call each, with names for what later ones need."""

from __future__ import annotations

from typing import Any

SPACE = "recorded"
CORE = f"/api/v1/namespaces/{SPACE}"
BATCH = f"/apis/batch/v1/namespaces/{SPACE}"
APPS = f"/apis/apps/v1/namespaces/{SPACE}"
NETWORK = f"/apis/networking.k8s.io/v1/namespaces/{SPACE}"
POLICY = f"/apis/policy/v1/namespaces/{SPACE}"
RBAC = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SPACE}"
RBAC_ALL = "/apis/rbac.authorization.k8s.io/v1"
KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATCHES = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
Step = dict[str, Any]


def step(method: str, path: str, body: Any = None, **rest: Any) -> Step:
    """One request.

    `patch` is the kind of a patch; `keep` names the reply's object, whose uid and version are then in
    `{name.uid}` and `{name.version}`; `show` lists paths of fields to compare, such as `spec.type`;
    `until` is a status that comes only after a while. Other names are the query's parameters.
    """
    made: Step = {"method": method, "path": path}
    if body is not None:
        made["body"] = body
    if kind := rest.pop("patch", ""):
        made["type"] = PATCHES[kind]
    for name in ("keep", "show", "until", "headers", "type", "raw"):
        if name in rest:
            made[name] = rest.pop(name)
    if rest:
        made["query"] = {key: str(value) for key, value in rest.items()}
    return made


def post(path: str, body: Any, **rest: Any) -> Step:
    """A creation."""
    return step("POST", path, body, **rest)


def get(path: str, **rest: Any) -> Step:
    """A read."""
    return step("GET", path, **rest)


def put(path: str, body: Any, **rest: Any) -> Step:
    """A replacement."""
    return step("PUT", path, body, **rest)


def patch(kind: str, path: str, body: Any, **rest: Any) -> Step:
    """A change."""
    return step("PATCH", path, body, patch=kind, **rest)


def apply(path: str, body: Any, manager: str = "one", **rest: Any) -> Step:
    """A server-side apply."""
    return patch("apply", path, body, **({"fieldManager": manager} if manager else {}), **rest)


def delete(path: str, body: Any = None, **rest: Any) -> Step:
    """A deletion."""
    return step("DELETE", path, body, **rest)


def obj(version: str, kind: str, name: str, *, meta: Any = None, **rest: Any) -> dict[str, Any]:
    """An object."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **(meta or {})}, **rest}


def config(name: str, *, meta: Any = None, **rest: Any) -> dict[str, Any]:
    """A ConfigMap."""
    return obj("v1", "ConfigMap", name, meta=meta, **rest)


def container(**rest: Any) -> dict[str, Any]:
    """A container that the level restricted admits."""
    return {"name": "main", "image": "registry.example/cloudrec:1", **rest}


def pod(name: str, *, one: Any = None, meta: Any = None, **spec: Any) -> dict[str, Any]:
    """A pod of one container."""
    return obj("v1", "Pod", name, meta=meta, spec={"containers": [container(**(one or {}))], **spec})


def job(name: str, *, template: Any = None, one: Any = None, **spec: Any) -> dict[str, Any]:
    """A suspended Job, so that no controller makes pods of it."""
    pods = {"restartPolicy": "Never", "containers": [container(**(one or {}))], **(template or {})}
    return obj("batch/v1", "Job", name, spec={"suspend": True, "template": {"spec": pods}, **spec})

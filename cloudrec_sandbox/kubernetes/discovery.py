"""Discovery: versions, groups, resources, health."""

from __future__ import annotations

import platform
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.http import Reply, json_reply
from cloudrec_sandbox.kubernetes import openapi
from cloudrec_sandbox.kubernetes.objects import errors, schema
from cloudrec_sandbox.kubernetes.storage.access import AUTHENTICATED

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.api.world import Cluster
    from cloudrec_sandbox.kubernetes.objects.resources import Resource, Resources
    from cloudrec_sandbox.kubernetes.storage.access import User

_HEALTH = ("/healthz", "/livez", "/readyz")
_SUBVERBS = {
    **{key: ["create"] for key in ("binding", "eviction", "token")},
    **{key: ["create", "get"] for key in ("exec", "portforward")},
    "log": ["get"],
}
_SUBKINDS = {
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
    "binding": ("", "v1", "Binding"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    "exec": ("", "v1", "PodExecOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
}


def check(user: User, path: str) -> None:
    """Refuse with 403 what unauthenticated clients may not see: all but health and version."""
    if AUTHENTICATED not in user.groups and path.rstrip("/") not in (*_HEALTH, "/version"):
        raise errors.ApiError(
            HTTPStatus.FORBIDDEN, "Forbidden", f'forbidden: User "{user.name}" cannot get path "{path}"'
        )


def answer(world: Cluster, path: str, host: str) -> Reply:
    """Return the document at a path without a resource; refused if there is none."""
    if path.rstrip("/") in _HEALTH:
        return Reply(headers=(("Content-Type", "text/plain"),), body=b"ok")
    parts = [part for part in path.split("/") if part]
    resources = world.store.resources
    if parts[:2] == ["openapi", "v3"]:
        document = openapi.document(world, "/".join(parts[2:])) if parts[2:] else openapi.index(world)
    else:
        document = _document(resources, parts, host)
    if document is None:
        # An unknown version of a known group has a handler, which finds nothing.
        known = parts[:1] == ["api"] or (
            parts[:1] == ["apis"] and parts[1:2] and parts[1] in resources.groups()
        )
        raise errors.no_such_path() if known else errors.PageNotFoundError
    return json_reply(document)


def _document(  # noqa: PLR0911 - a table of documents
    resources: Resources, parts: list[str], host: str
) -> dict[str, Any] | None:
    groups = resources.groups()
    match parts:
        case ["version"]:
            return _version()
        case ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        case ["apis"]:
            rows = [_group(name, versions) for name, versions in groups.items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": rows}
        case ["apis", name] if name in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, groups[name])}
        case ["api", "v1"]:
            return _resources(resources, "", "v1")
        case ["apis", name, version] if version in groups.get(name, ()):
            return _resources(resources, name, version)
    return None


def _version() -> dict[str, str]:
    major, minor, _ = schema.version().removeprefix("v").split(".")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "major": major,
        "minor": minor,
        "gitVersion": schema.version(),
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
        "buildDate": "2026-08-26T00:00:00Z",
        "goVersion": "go1.25",
        "compiler": "gc",
        "platform": f"linux/{machine}",
    }


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    rows = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": rows, "preferredVersion": rows[0]}


def _resources(resources: Resources, group: str, version: str) -> dict[str, Any]:
    lines: list[dict[str, Any]] = []
    for resource in resources.served():
        if (resource.group, resource.version) == (group, version):
            lines += _lines(resource)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": lines,
    }


def _lines(resource: Resource) -> list[dict[str, Any]]:
    short = {"shortNames": list(resource.short_names)} if resource.short_names else {}
    own = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        **short,
    }
    return [own, *(_below(resource, name) for name in resource.subresources)]


def _below(resource: Resource, name: str) -> dict[str, Any]:
    group, version, kind = _SUBKINDS.get(name, (resource.group, resource.version, resource.kind))
    verbs = _SUBVERBS.get(name, ["get", "patch", "update"])
    line = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": verbs,
    }
    return {**line, "group": group, "version": version} if name in _SUBKINDS else line

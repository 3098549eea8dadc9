"""The OpenAPI documents of the API: an index, and one document for each group and version.

Clients read from them which fields a kind has (`kubectl explain`). They have the published schemas, in the
form of OpenAPI 3.0: "The OpenAPI v3 specification" in Kubernetes' documentation ("Kubernetes OpenAPI").
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.kubernetes.api.world import Cluster
    from cloudrec_sandbox.kubernetes.objects.resources import Resource

_METHODS = {
    "get": ("get", "list"),
    "post": ("create",),
    "put": ("update",),
    "patch": ("patch",),
    "delete": ("delete", "deletecollection"),
}
_OF_COLLECTION = ("list", "create", "deletecollection")
_LOCAL, _SHARED = "#/$defs/", "#/components/schemas/"


def index(world: Cluster) -> dict[str, Any]:
    """Return where each document is; the hash lets a client keep a document that has not changed."""
    places: dict[str, Any] = {}
    for path in sorted({_path(each) for each in world.store.resources.served()}):
        content = json.dumps(document(world, path), sort_keys=True).encode()
        mark = hashlib.sha512(content).hexdigest().upper()
        places[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={mark}"}
    return {"paths": places}


def document(world: Cluster, path: str) -> dict[str, Any] | None:
    """Return the document of `api/v1`, `apis/batch/v1`, ...; None if no such group and version is served."""
    served = [each for each in world.store.resources.served() if _path(each) == path]
    if not served:
        return None
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for resource in served:
        name = _collect(world, resource, schemas)
        paths |= dict(_paths(resource, name))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": schema.version()},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _path(resource: Resource) -> str:
    return f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"


def _identity(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _paths(resource: Resource, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    space = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"/{_path(resource)}{space}/{resource.plural}"
    whole = [verb for verb in resource.verbs if verb in _OF_COLLECTION]
    single = [verb for verb in resource.verbs if verb not in _OF_COLLECTION]
    for path, verbs in ((collection, whole), (f"{collection}/{{name}}", single)):
        operations = {
            method: _operation(resource, name, verb)
            for method, known in _METHODS.items()
            for verb in verbs
            if verb in known
        }
        if operations:
            yield path, operations


def _operation(resource: Resource, name: str, verb: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"{_SHARED}{name}"}}}
    return {
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": {"create": "post", "update": "put"}.get(verb, verb),
        "x-kubernetes-group-version-kind": _identity(resource),
    }


def _collect(world: Cluster, resource: Resource, schemas: dict[str, Any]) -> str:
    """Add the schema of a kind, and those that it refers to; return its name."""
    node = world.node_of(resource)
    reversed_group = ".".join(reversed(resource.group.split("."))) or "io.k8s.api.core"
    name = node.name or f"{reversed_group}.{resource.version}.{resource.kind}"
    raw = {**_published(node.raw, schemas), "x-kubernetes-group-version-kind": [_identity(resource)]}
    schemas[name] = raw
    return name


def _published(raw: Any, schemas: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """Return a schema in the form of OpenAPI 3.0, which has one type a value and no `null`."""
    if isinstance(raw, list):
        return [_published(each, schemas) for each in raw]
    if not isinstance(raw, dict):
        return raw
    found: dict[str, Any] = {}
    for key, value in raw.items():
        if key == "$ref":
            found[key] = _SHARED + _shared(value.removeprefix(_LOCAL), schemas)
        elif key == "type" and isinstance(value, list):
            found[key] = next(each for each in value if each != "null")
        elif key == "properties":
            found[key] = {name: _published(each, schemas) for name, each in value.items()}
        elif not (key == "additionalProperties" and value is False):
            found[key] = _published(value, schemas)
    return found


def _shared(name: str, schemas: dict[str, Any]) -> str:
    if name not in schemas:
        schemas[name] = {}  # a schema may refer to itself
        schemas[name] = _published(schema.definition(name), schemas)
    return name

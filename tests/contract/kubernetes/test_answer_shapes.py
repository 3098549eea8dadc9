"""The types that the client expects of fields are those of the API server's schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cloudrec.kubernetes.client import kinds as client_kinds
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.wire import ApiRequest
from tests.contract.kubernetes.support import CONTROL_PLANE, Server, joined_server
from tests.contract.kubernetes.support_guard import LAUNCHERS

pytestmark = pytest.mark.slow
# What each review answers with.
_REVIEWS = {
    "SubjectAccessReviewStatus": client_kinds._REVIEW,
    "SubjectRulesReviewStatus": client_kinds._RULES,
}
_TYPES = {str: "string", int: "integer", bool: "boolean", dict: "object", list: "array"}


@pytest.fixture(scope="module", params=[CONTROL_PLANE])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with joined_server(request.getfixturevalue("real_server")) as server:
        for operator in filter(None, LAUNCHERS.values()):
            server.serve_kinds(operator)
        yield server


def _documents(kube: Kube) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the OpenAPI document of each group's version whose answers are checked, with its path."""

    def read(path: str) -> dict[str, Any]:
        found: dict[str, Any] = kube._wire.json(ApiRequest(method="GET", path=path, what="read the schemas"))
        return found

    for path in read("/openapi/v3")["paths"]:
        if f"/{path}/".startswith((*client_kinds._READ, client_kinds._REVIEWS)):
            yield path, read(f"/openapi/v3/{path}")


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    while True:
        several: list[dict[str, Any]] = schema.get("allOf") or []
        reference = schema.get("$ref") or (several[0].get("$ref") if len(several) == 1 else None)
        if reference is None:
            return schema
        schema = schemas[reference.rpartition("/")[2]]


def _allowed(schema: dict[str, Any]) -> set[str]:
    """Return the types of a schema's values; empty for any type."""
    if schema.get("x-kubernetes-int-or-string") or schema.get("oneOf"):
        return {"string", "integer"}  # a quantity
    return {schema["type"]} if "type" in schema else set()


def _wrong(schema: dict[str, Any], wanted: Any, schemas: dict[str, Any], where: str) -> Iterator[str]:
    """Yield the fields of a schema whose values may have a type that the client refuses."""
    schema = _resolved(schema, schemas)
    allowed = _allowed(schema)
    if not allowed:
        return
    first = wanted if not isinstance(wanted, dict | list) else type(wanted)
    accepted = {_TYPES[each] for each in (first if isinstance(first, tuple) else (first,))}
    if not allowed <= accepted:
        yield f"{where}: {sorted(allowed)}, not {sorted(accepted)}"
    elif isinstance(wanted, list):
        yield from _wrong(schema["items"], wanted[0], schemas, f"{where}[]")
    elif isinstance(wanted, dict):
        for name, rule in wanted.items():
            if name:
                field = schema.get("properties", {}).get(name.rstrip("!"))
                fields = {name.rstrip("!"): field} if field else {}
                if (
                    name.endswith("!")
                    and "properties" in schema
                    and name[:-1] not in schema.get("required", ())
                ):
                    yield f"{where}.{name[:-1]} may be left out"
            elif isinstance(schema.get("additionalProperties"), dict):
                fields = {"*": schema["additionalProperties"]}
            else:
                fields = schema.get("properties", {})
            for key, field in fields.items():
                yield from _wrong(field, rule, schemas, f"{where}.{key}")


def test_each_field_has_the_type_of_the_schema(server: Server) -> None:
    kinds, wrong = set[str](), list[str]()
    with server.connect() as kube:
        for path, document in _documents(kube):
            schemas = document["components"]["schemas"]
            if f"/{path}/" == client_kinds._REVIEWS:
                for name, rules in _REVIEWS.items():
                    kinds.add(name)
                    status = schemas[f"io.k8s.api.authorization.v1.{name}"]
                    wrong += _wrong(status, rules["status!"], schemas, name)
                continue
            for name, schema in schemas.items():
                served = [each["kind"] for each in schema.get("x-kubernetes-group-version-kind", ())]
                # A Status is recognized by its kind.
                if (
                    served[:1] not in ([], ["Status"])
                    and "metadata" in schema.get("properties", {})
                    and not name.endswith("List")
                ):
                    kinds.add(f"{path} {served[0]}")
                    wrong += _wrong(schema, client_kinds._OBJECT, schemas, f"{path} {served[0]}")
    assert "\n".join(wrong) == ""
    assert kinds >= set(_REVIEWS)
    assert {"api/v1 Pod", "api/v1 Node", "batch/v1 Job", "apps/v1 DaemonSet"} <= {
        each.removeprefix("apis/") for each in kinds
    }
    assert len(kinds) > 30

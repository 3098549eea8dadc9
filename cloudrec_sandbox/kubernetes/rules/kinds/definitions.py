"""CustomResourceDefinitions: `ValidateCustomResourceDefinition` in apiextensions-apiserver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.rules.problems import Problems

_SCOPES = ("Cluster", "Namespaced")
_TYPES = ("array", "boolean", "integer", "number", "object", "string")


@check("customresourcedefinitions")
def _definition(change: Change, problems: Problems) -> None:
    spec, name = change.spec, change.new["metadata"].get("name", "")
    right = f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}"
    if name != right:
        problems.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if spec.get("scope") not in _SCOPES:
        problems.unsupported("spec.scope", spec.get("scope", ""), _SCOPES)
    versions = spec.get("versions") or ()
    if sum(bool(each.get("storage")) for each in versions) != 1:
        problems.invalid("spec.versions", versions, "must have exactly one version marked as storage version")
    for version in versions:
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is not None:
            _check_schema(schema, "spec.validation.openAPIV3Schema", problems)


def _check_schema(schema: Mapping[str, Any], path: str, problems: Problems) -> None:
    """Report parts without a type, which a structural schema must have, and unknown types."""
    kind = schema.get("type", "")
    is_open = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not kind and not is_open:
        problems.required(f"{path}.type", "must not be empty for specified object fields")
    elif kind and kind not in _TYPES:
        problems.unsupported(f"{path}.type", kind, _TYPES)
    for name, each in (schema.get("properties") or {}).items():
        _check_schema(each, f"{path}.properties[{name}]", problems)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            _check_schema(schema[name], f"{path}.{name}", problems)

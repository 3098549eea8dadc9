"""The environment of a container, from its spec."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects.quantities import amount

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")


class MissingReferenceError(Exception):
    """A ConfigMap, a Secret or a key that a pod needs does not exist."""


def environment(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    *,
    find: Callable[[str, str], Mapping[str, Any] | None],
    node: Mapping[str, Any],
) -> dict[str, str]:
    """Return the variables of a container; MissingReferenceError for a missing reference."""
    found: dict[str, str] = {}
    # Container in the API model: values of env take precedence over those of envFrom.
    for source in container.get("envFrom") or ():
        found |= _all_of(source, find)
    for each in container.get("env") or ():
        if "valueFrom" in each:
            value = _value_from(each["valueFrom"], pod, container, find, node)
            if value is None:
                continue
        else:
            value = expand(each.get("value") or "", found)
        found[each["name"]] = value
    return found


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) by its variable; unknown ones stay, $$ is a $."""

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else variables.get(name, match[0])

    return _REFERENCE.sub(replace, text)


def expand_all(texts: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Expand each text of a command."""
    return [expand(text, variables) for text in texts]


def field(pod: Mapping[str, Any], path: str) -> str:
    """Return one of a pod's own fields, as fieldRef names it."""
    match = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if match:
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = pod["metadata"].get(path.partition(".")[2]) or {}
        return "\n".join(f'{name}="{value}"' for name, value in sorted(entries.items()))
    if path == "status.podIPs":
        return ",".join(each["ip"] for each in pod.get("status", {}).get("podIPs") or ())
    value: Any = pod
    if path == "spec.serviceAccountName":
        return str(pod["spec"].get("serviceAccountName") or "default")
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)


def resource_field(
    reference: Mapping[str, Any], container: Mapping[str, Any], node: Mapping[str, Any]
) -> str:
    """Return a container's own request or limit; the node's allocatable if it has none."""
    side, _, name = reference["resource"].partition(".")
    resources = container.get("resources") or {}
    limits, asked = resources.get("limits") or {}, resources.get("requests") or {}
    quantity = limits.get(name) if side == "limits" else asked.get(name, limits.get(name))
    if quantity is None:
        allocatable = node.get("status", {}).get("allocatable") or {}
        quantity = allocatable.get(name, "0") if side == "limits" else "0"
    divisor = amount(reference.get("divisor") or "1") or 1.0
    # Rounded up, as the kubelet does: 1500m CPUs with the divisor 1 are 2.
    return str(-int(-amount(quantity) // divisor))


def _all_of(
    source: Mapping[str, Any], find: Callable[[str, str], Mapping[str, Any] | None]
) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    for name, plural in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
        if name in source:
            obj = find(plural, source[name]["name"])
            if obj is None:
                if source[name].get("optional"):
                    return {}
                raise MissingReferenceError(f'{plural[:-1]} "{source[name]["name"]}" not found')
            return {prefix + key: value.decode() for key, value in contents(obj).items()}
    return {}


def _value_from(
    source: Mapping[str, Any],
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    find: Callable[[str, str], Mapping[str, Any] | None],
    node: Mapping[str, Any],
) -> str | None:
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return resource_field(source["resourceFieldRef"], container, node)
    kind = "configMapKeyRef" if "configMapKeyRef" in source else "secretKeyRef"
    plural = "configmaps" if kind == "configMapKeyRef" else "secrets"
    reference = source[kind]
    obj = find(plural, reference["name"])
    if obj is None:
        if reference.get("optional"):
            return None
        raise MissingReferenceError(f'{plural[:-1]} "{reference["name"]}" not found')
    value = contents(obj).get(reference["key"])
    if value is None:
        if reference.get("optional"):
            return None
        space = pod["metadata"]["namespace"]
        what = "ConfigMap" if plural == "configmaps" else "Secret"
        raise MissingReferenceError(
            f"couldn't find key {reference['key']} in {what} {space}/{reference['name']}"
        )
    return value.decode()


def contents(obj: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the entries of a ConfigMap or a Secret."""
    found = {name: value.encode() for name, value in (obj.get("stringData") or {}).items()}
    is_secret = obj.get("kind") == "Secret"
    for name, value in (obj.get("data") or {}).items():
        found[name] = b64decode(value) if is_secret else value.encode()
    for name, value in (obj.get("binaryData") or {}).items():
        found[name] = b64decode(value)
    return found

"""What a request is for: the service, the action, the permission that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from cloudrec_sandbox.azure.arm import blob_place, registry
from cloudrec_sandbox.azure.arm.paths import Path, parse

if TYPE_CHECKING:
    from cloudrec_sandbox.core.http import HttpRequest

_ENTRA = ("oauth2", ".well-known", "discovery")
_VERBS = {"PUT": "write", "PATCH": "write", "DELETE": "delete"}
# POST requests that change nothing: they need a permission to read.
_CHECKS = {
    "Microsoft.Storage/checkNameAvailability": "Microsoft.Storage/checknameavailability",
    "Microsoft.ContainerRegistry/checkNameAvailability": "Microsoft.ContainerRegistry/checkNameAvailability",
}
_POLLS = ("operations", "operationresults", "operationstatuses")


@dataclass(frozen=True, kw_only=True)
class Target:
    """`service` is the namespace's last word; `action` is verb and types: "Put virtualNetworks/subnets"."""

    method: str
    path: Path
    query: dict[str, str]
    service: str
    action: str
    iam_action: str

    @property
    def is_poll(self) -> bool:
        """Return whether it polls an operation."""
        return self.action == "Get operations"


def identify(request: HttpRequest) -> Target:
    """Return what a request is for, whether it exists or not."""
    parts = urlsplit(request.target)
    query = {name.lower(): value for name, value in parse_qsl(parts.query, keep_blank_values=True)}
    if parts.path.startswith(blob_place.PREFIX):
        return _of_blob(request.method, parts.path, query)
    path = parse(unquote(parts.path))
    service, action, permission = _named(request.method, path)
    return Target(
        method=request.method, path=path, query=query, service=service, action=action, iam_action=permission
    )


def _of_blob(method: str, text: str, query: dict[str, str]) -> Target:
    """Return the target of a request to Blob Storage; its path's text is as it arrived."""
    action = blob_place.operation(method, blob_place.place_of(text), query)
    return Target(
        method=method,
        path=Path(text=text, scope="", namespace="", types=(), names=()),
        query=query,
        service="blob",
        action=action,
        iam_action=blob_place.PERMISSIONS.get(action, ("", False))[0],
    )


@lru_cache(maxsize=4096)
def _named(method: str, path: Path) -> tuple[str, str, str]:
    verb = method.capitalize()
    words = path.text.lower().split("/")
    if any(word in _ENTRA for word in words):
        return "entra", f"{verb} {'token' if words[-1] == 'token' else words[-1]}", ""
    if path.text.lower() == "/api/retail/prices":
        return "retail", f"{verb} prices", ""
    if path.types and path.types[-1].lower() in _POLLS:
        return path.namespace.rpartition(".")[2].lower(), "Get operations", ""
    full = _spelt(method, path)
    namespace, _, types = full.partition("/")
    return namespace.rpartition(".")[2].lower(), f"{verb} {types}", _permission(method, path, full)


def _permission(method: str, path: Path, full: str) -> str:
    """Return the permission that a call needs, as roles name it."""
    namespace, _, types = full.partition("/")
    if full == "Microsoft.Resources/providers/register":
        return f"{path.names[0]}/register/action"
    if full in _CHECKS:
        return f"{_CHECKS[full]}/read"
    if full == "Microsoft.Resources/resources" and path.group:
        return "Microsoft.Resources/subscriptions/resourcegroups/resources/read"
    is_own = types.startswith(("subscriptions", "tags", "deployment"))
    if namespace == "Microsoft.Resources" and path.subscription and not is_own:
        full = f"Microsoft.Resources/subscriptions/{types}"
    return f"{full}/action" if method == "POST" else f"{full}/{_VERBS.get(method, 'read')}"


def _spelt(method: str, path: Path) -> str:
    """Return the type as it was registered, or as the path has it."""
    kind = path.type.lower()
    known = registry.routes.get((method, kind))
    if known is not None:
        return known[0]
    if kind in registry.kinds:
        return registry.kinds[kind].type
    return path.type

"""What a request is for, read from its method and path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from cloudrec_sandbox.core.http import HttpRequest

CORE = "core"
_CHANGES = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """A verb and a resource; `plural` is empty for paths without one (discovery, version, health)."""

    verb: str
    path: str
    query: str = ""
    group: str = ""
    version: str = ""
    namespace: str | None = None
    plural: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def service(self) -> str:
        """Return the API group."""
        return self.group or CORE

    @property
    def action(self) -> str:
        """Return verb and resource: "list pods", "create pods/eviction"."""
        what = f"{self.plural}/{self.subresource}" if self.subresource else self.plural or self.path
        return f"{self.verb} {what}"

    @property
    def iam_action(self) -> str:
        """Return the permission that RBAC requires."""
        return f"{self.service}:{self.action}"

    @cached_property
    def asked(self) -> dict[str, str]:
        """Return the query."""
        return dict(parse_qsl(self.query, keep_blank_values=True))

    def flag(self, name: str) -> bool:
        """Return whether a parameter is true."""
        return self.asked.get(name, "").lower() in ("true", "1")


def identify(request: HttpRequest) -> Target:
    """Return what the request is for; it never fails."""
    query = urlsplit(request.target).query
    method = "get" if request.method == "HEAD" else request.method.lower()
    parts = [part for part in request.path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 2:  # noqa: PLR2004 - /api/v1/...
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:  # noqa: PLR2004 - /apis/batch/v1/...
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Target(verb=method, path=request.path, query=query)
    namespace = None
    if rest[0] == "namespaces" and len(rest) > 2 and not _of_namespace(rest):  # noqa: PLR2004
        namespace, rest = rest[1], rest[2:]
    plural, name, *below = [*rest, ""][: max(2, len(rest))]
    target = Target(
        verb="get",
        path=request.path,
        query=query,
        group=group,
        version=version,
        namespace=namespace,
        plural=plural,
        name=name,
        subresource="/".join(below),
    )
    return replace(target, verb=_verb(request.method, target))


def _of_namespace(rest: list[str]) -> bool:
    return rest[2] in ("status", "finalize") and len(rest) == 3  # noqa: PLR2004


def _verb(method: str, target: Target) -> str:
    if method in _CHANGES:
        return _CHANGES[method]
    if method == "DELETE":
        return "delete" if target.name else "deletecollection"
    if target.flag("watch") and not target.subresource:
        return "watch"
    return "get" if target.name else "list"

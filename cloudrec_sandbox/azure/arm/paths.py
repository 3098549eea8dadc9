"""Paths of Azure Resource Manager: the scope, the type and the name of a resource.

Names and types are compared ignoring case; ids are returned as they were spelt first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

SUBSCRIPTION = "00000000-0000-4000-8000-000000000001"  # the first one of the stand-in
RESOURCES = "Microsoft.Resources"
GROUP = "Microsoft.Resources/resourceGroups"
_FEATURES = "microsoft.features"
# Types of Microsoft.Resources whose paths have no /providers/.
_CORE = {
    "subscriptions": "subscriptions",
    "resourcegroups": "resourceGroups",
    "tenants": "tenants",
    "providers": "providers",
}


@dataclass(frozen=True, kw_only=True)
class Path:
    """A path, parsed.

    `scope` is the part before the namespace. `types` and `names` alternate after it: with as many names
    as types the path is of one resource, with one name fewer of a list of resources or an action.
    """

    text: str
    scope: str
    namespace: str
    types: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def key(self) -> str:
        """Return the path in lower case, for comparisons."""
        return self.text.lower()

    @property
    def type(self) -> str:
        """Return the whole type, as in Microsoft.Network/virtualNetworks/subnets."""
        return "/".join((self.namespace, *self.types))

    @property
    def is_item(self) -> bool:
        """Return whether it names one resource."""
        return len(self.names) == len(self.types)

    @property
    def name(self) -> str:
        """Return the last name; '' if there is none."""
        return self.names[-1] if self.names else ""

    @property
    def parent(self) -> str:
        """Return the id of the owner of a list or a child: another resource, or the scope."""
        depth = len(self.types) - 1
        if depth == 0:
            return self.scope
        pairs = zip(self.types[:depth], self.names, strict=False)
        inner = "/".join(f"{kind}/{name}" for kind, name in pairs)
        if self.namespace == RESOURCES and "/providers/" not in self.text.lower():
            return f"{self.scope}/{inner}"
        return f"{self.scope}/providers/{self.namespace}/{inner}"

    def spelt(self, type_: str) -> str:
        """Return the path of one resource, with its type and its scope spelt as ARM does."""
        namespace, *types = type_.split("/")
        pairs = "/".join(f"{kind}/{name}" for kind, name in zip(types, self.names, strict=True))
        scope = re.sub("/resourcegroups/", "/resourceGroups/", self.scope, flags=re.IGNORECASE)
        root = scope if namespace == RESOURCES else f"{scope}/providers/{namespace}"
        return f"{root}/{pairs}"

    @property
    def subscription(self) -> str:
        """Return the subscription's GUID, in lower case; '' if the path has none."""
        return _after(self.text, "subscriptions").lower()

    @property
    def group(self) -> str:
        """Return the resource group's name; '' if the path has none."""
        return _after(self.text, "resourcegroups")


@lru_cache(maxsize=4096)
def parse(text: str) -> Path:
    """Parse a path; a path that is not ARM's has no types."""
    text = "/" + text.strip("/")
    parts = text.split("/")[1:]
    lower = [part.lower() for part in parts]
    at = _namespace_at(lower)
    if at is None:
        return _core(text, parts, lower)
    scope, namespace, rest = "/".join(["", *parts[: at - 1]]), parts[at], parts[at + 1 :]
    if not rest:  # /subscriptions/S/providers/NAMESPACE
        return Path(text=text, scope=scope, namespace=RESOURCES, types=("providers",), names=(namespace,))
    if rest[0].lower() in ("register", "unregister") and len(rest) == 1:
        types = ("providers", rest[0])
        return Path(text=text, scope=scope, namespace=RESOURCES, types=types, names=(namespace,))
    return Path(text=text, scope=scope, namespace=namespace, types=tuple(rest[::2]), names=tuple(rest[1::2]))


def _namespace_at(lower: list[str]) -> int | None:
    """Return the index of the namespace that the last types belong to."""
    for at, part in enumerate(lower):
        if part == _FEATURES and at and lower[at - 1] == "providers":
            return at
    for at in range(len(lower) - 1, 0, -1):
        if lower[at - 1] == "providers" and "." in lower[at]:
            return at
    return None


def _core(text: str, parts: list[str], lower: list[str]) -> Path:
    """Parse the path of a subscription, a resource group, or a list of them or of resources."""
    start = 0
    if len(parts) > 2 and lower[0] == "subscriptions":  # noqa: PLR2004 - /subscriptions/S/more
        start = 2
        if lower[2] == "resourcegroups" and len(parts) > 4:  # noqa: PLR2004 - .../resourceGroups/G/more
            start = 4
    scope, rest = "/".join(["", *parts[:start]]), parts[start:]
    types = tuple(_CORE.get(kind.lower(), kind) for kind in rest[::2])
    return Path(text=text, scope=scope.rstrip("/"), namespace=RESOURCES, types=types, names=tuple(rest[1::2]))


def _after(text: str, word: str) -> str:
    parts = text.split("/")
    for at, part in enumerate(parts[:-1]):
        if part.lower() == word:
            return parts[at + 1]
    return ""

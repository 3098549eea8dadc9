"""Schemas of kinds: fields, types, keys of lists; as Kubernetes publishes them or a definition has them."""

from __future__ import annotations

import json
import re
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

_FOLDER = "kubernetes-json-schema"
_NAME = re.compile(r"v(\d+)\.(\d+)\.(\d+)-local-strict")
_DEFAULT_KEYS = {"protocol": "TCP"}  # values of list keys that an item leaves out
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


class Node:
    """One place in a schema; below a place that allows everything there is none."""

    def __init__(self, raw: dict[str, Any], definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self.name = ""
        reference = raw.get("$ref")
        if reference is None and len(raw.get("allOf", ())) == 1:
            reference = raw["allOf"][0].get("$ref")
        if reference:
            self.name = reference.rpartition("/")[2]
            # The list type and the patch strategy are beside the reference, not in the referenced definition.
            raw = {**definitions[self.name], **{key: raw[key] for key in raw if key.startswith("x-")}}
        self.raw = raw

    @cached_property
    def fields(self) -> dict[str, Node]:
        """Return the named fields."""
        properties = self.raw.get("properties") or {}
        return {name: Node(raw, self._definitions) for name, raw in properties.items()}

    @cached_property
    def values(self) -> Node | None:
        """Return the schema of a map's values; None if it is no map."""
        raw = self.raw.get("additionalProperties")
        return Node(raw, self._definitions) if isinstance(raw, dict) else None

    @cached_property
    def items(self) -> Node:
        """Return the schema of a list's items."""
        return Node(self.raw.get("items") or {}, self._definitions)

    @cached_property
    def types(self) -> frozenset[str]:
        """Return the JSON types that a value may have; empty for any."""
        if self.raw.get("x-kubernetes-int-or-string"):
            return frozenset(("string", "integer"))
        sources = [self.raw, *self.raw.get("oneOf", ())] if "type" not in self.raw else [self.raw]
        found: set[str] = set()
        for each in sources:
            kind = each.get("type", ())
            found |= {kind} if isinstance(kind, str) else set(kind)
        return frozenset(found - {"null"})

    @cached_property
    def is_open(self) -> bool:
        """Return whether unknown fields are kept."""
        if self.raw.get("x-kubernetes-preserve-unknown-fields"):
            return True
        return not self.fields and self.values is None and not self.is_empty

    @cached_property
    def is_empty(self) -> bool:
        """Return whether it is an object without any fields."""
        return self.raw.get("additionalProperties") is False

    @property
    def is_quantity(self) -> bool:
        """Return whether it is a quantity of a resource."""
        return self.name == _QUANTITY

    @property
    def is_atomic(self) -> bool:
        """Return whether an object is owned and replaced as a whole."""
        return self.raw.get("x-kubernetes-map-type") == "atomic"

    @property
    def list_type(self) -> str:
        """Return whether a list is `atomic`, a `set`, or a `map` by the keys of its items."""
        return str(self.raw.get("x-kubernetes-list-type", "atomic"))

    @property
    def patch_key(self) -> str:
        """Return the key by which a strategic merge patch merges a list; empty for none."""
        return str(self.raw.get("x-kubernetes-patch-merge-key", ""))

    @property
    def patch_merges(self) -> bool:
        """Return whether a strategic merge patch merges a list."""
        return "merge" in str(self.raw.get("x-kubernetes-patch-strategy", "")).split(",")

    def key_of(self, item: dict[str, Any]) -> dict[str, Any]:
        """Return the key of an item in a list that is a map."""
        names = self.raw.get("x-kubernetes-list-map-keys") or ()
        key = {name: item.get(name, _DEFAULT_KEYS.get(name)) for name in names}
        return {name: value for name, value in key.items() if value is not None}

    def child(self, name: str) -> Node:
        """Return the schema of a field; an unnamed field allows everything."""
        return self.fields.get(name) or self.values or ANYTHING


ANYTHING = Node({}, {})
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


@cache
def _published() -> tuple[str, dict[str, Any]]:
    """Return the newest version of Kubernetes whose schemas are installed, and its definitions."""
    folders = {
        tuple(map(int, found.groups())): folder
        for folder in files("kubernetes_validate").joinpath(_FOLDER).iterdir()
        if (found := _NAME.fullmatch(folder.name))
    }
    newest = max(folders)
    text = folders[newest].joinpath("_definitions.json").read_text(encoding="utf-8")
    return "v" + ".".join(map(str, newest)), json.loads(text)["$defs"]


def version() -> str:
    """Return the version of Kubernetes that is served."""
    return _published()[0]


@cache
def _places() -> dict[tuple[str, str, str], str]:
    return {
        (each["group"], each["version"], each["kind"]): name
        for name, raw in _published()[1].items()
        for each in raw.get("x-kubernetes-group-version-kind") or ()
    }


@cache
def built_in(group: str, version: str, kind: str) -> Node:
    """Return the schema of a built-in kind; a kind without a published schema allows everything."""
    name = _places().get((group, version, kind))
    return Node({"$ref": f"#/$defs/{name}"}, _published()[1]) if name else ANYTHING


def definition(name: str) -> dict[str, Any]:
    """Return a published definition."""
    found: dict[str, Any] = _published()[1][name]
    return found


def custom(raw: dict[str, Any]) -> Node:
    """Return the schema of a defined kind."""
    definitions = _published()[1]
    properties = {**raw.get("properties", {}), "metadata": {"$ref": f"#/$defs/{_METADATA}"}}
    for name in ("apiVersion", "kind"):
        properties.setdefault(name, {"type": "string"})
    return Node({"type": "object", **raw, "properties": properties}, definitions)

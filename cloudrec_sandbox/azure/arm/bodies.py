"""Bodies checked against the SDK's own models: unknown fields, enum values, wrong types, missing fields.

Models are named "azure.mgmt.network.models:VirtualNetwork". Their module is imported when a body is first
checked against it, without the package's __init__, whose clients would take seconds to import.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

Check = Callable[[Any, str], Iterator[str]]
_ALIAS = "_cloudrec_models_of_"
_PLAIN: dict[type, tuple[type, ...]] = {str: (str,), bool: (bool,), int: (int,), float: (int, float)}
# Enums that have only the values of years ago: the SDK names them deprecated, and Azure takes others.
_OLD_ENUMS = frozenset({"VirtualMachineSizeTypes"})
_NAMES = {"str": str, "bool": bool, "int": int, "float": float, "long": int}


def faults(model: str, body: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Return what is wrong with a body, each with its path."""
    module, _, name = model.partition(":")
    return list(_check_of(getattr(_models(module), name))(body, ""))


@cache
def _models(module: str) -> types.ModuleType:
    """Return a package's `models`, imported under another name so that no package's __init__ runs."""
    package, _, last = module.rpartition(".")
    spec = find_spec(".".join(package.split(".")[:3]))
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"there is no {package}")
    parts = package.split(".")
    place = list(spec.submodule_search_locations)
    name = _ALIAS + "_".join(parts[:3])
    _stub(name, place)
    for part in parts[3:]:
        name, place = f"{name}.{part}", [f"{folder}/{part}" for folder in place]
        _stub(name, place)
    return importlib.import_module(f"{name}.{last}")


def _stub(name: str, place: list[str]) -> None:
    if name not in sys.modules:
        stub = types.ModuleType(name)
        stub.__path__ = place
        sys.modules[name] = stub


@cache
def _check_of(model: type) -> Check:
    if hasattr(model, "_attribute_map"):
        return _older(model)
    fields: dict[str, tuple[bool, bool, Check]] | None = None

    def check(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
        nonlocal fields
        if fields is None:
            fields = _fields(model)
        if not isinstance(value, Mapping):
            yield f"{path or 'the body'}: not an object"
            return
        yield from _members(model.__name__, fields, value, path)

    return check


def _members(
    model: str, fields: Mapping[str, tuple[bool, bool, Check]], value: Mapping[str, Any], path: str
) -> Iterator[str]:
    for key, content in value.items():
        where = f"{path}.{key}".lstrip(".")
        known = fields.get(key)
        if known is None:
            yield f"{where}: no such member of {model}"
        elif known[0]:
            yield f"{where}: read-only"
        elif content is not None:
            yield from known[2](content, where)
    for key, (_, required, _check) in fields.items():
        if required and value.get(key) is None:
            yield f"{path}.{key}: required".lstrip(".")


def _fields(model: type) -> dict[str, tuple[bool, bool, Check]]:
    """Return a model's members by their name on the wire: read-only, required, check of the value."""
    described: Any = model
    made = described.__new__(described)  # the class lists its members only after that
    found = {}
    for attribute, member in made._attr_to_rest_field.items():  # noqa: SLF001 - the models' only list of members
        annotation, module = _annotation(model, attribute)
        kind = _evaluated(annotation, module)
        read_only = member._visibility == ["read"]  # noqa: SLF001 - there is no public name
        optional = type(None) in typing.get_args(kind)
        has_default = isinstance(member._default, str | int | float | list)  # noqa: SLF001 - no public name
        found[member._rest_name] = (  # noqa: SLF001 - no public name
            read_only,
            not (optional or read_only or has_default or member._is_discriminator),  # noqa: SLF001 - as above
            _check_of_kind(kind, module),
        )
    return found


def _annotation(model: type, attribute: str) -> tuple[Any, types.ModuleType]:
    for base in model.__mro__:
        own = inspect.get_annotations(base)
        if attribute in own:
            return own[attribute], sys.modules[base.__module__]
    raise LookupError(f"{model.__name__} has no annotation of {attribute}")


def _evaluated(annotation: Any, module: types.ModuleType) -> Any:  # noqa: ANN401 - a type
    """Return an annotation with its names looked up in the models' modules."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation
    models = sys.modules[module.__name__.rpartition(".")[0]]
    names = {**vars(module), "_models": models, "_types": models}
    return eval(annotation, names)  # noqa: S307 - the text is the installed SDK's own


def _check_of_kind(kind: Any, module: types.ModuleType) -> Check:  # noqa: ANN401 - a type
    kind = _evaluated(kind, module)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _any_of([_evaluated(each, module) for each in arguments if each is not type(None)], module)
    if origin is list:
        return _list_of(_check_of_kind(arguments[0], module))
    if origin in (dict, Mapping) or kind is dict:
        return _map_of(_check_of_kind(arguments[1], module) if arguments else _anything)
    return _check_of_class(kind) if isinstance(kind, type) else _anything


def _check_of_class(kind: Any) -> Check:  # noqa: ANN401 - a class
    if kind.__name__ in _OLD_ENUMS:
        return _plain(str)
    if issubclass(kind, enum.Enum):
        return _one_of([str(each.value) for each in kind])
    if kind in _PLAIN:
        return _plain(kind)
    return _check_of(kind) if any(base.__name__ == "Model" for base in kind.__mro__) else _anything


def _any_of(kinds: list[Any], module: types.ModuleType) -> Check:
    """Return a check that takes the best match; beside an enum, `str` allows no other values."""
    enums = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, enum.Enum)]
    checks = [_check_of_kind(kind, module) for kind in enums or kinds]
    if len(checks) == 1:
        return checks[0]

    def check(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
        yield from min((list(each(value, path)) for each in checks), key=len)

    return check


def _list_of(item: Check) -> Check:
    def check(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
        if not isinstance(value, list):
            yield f"{path}: not a list"
            return
        for at, each in enumerate(value):
            yield from item(each, f"{path}[{at}]")

    return check


def _map_of(item: Check) -> Check:
    def check(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
        if not isinstance(value, Mapping):
            yield f"{path}: not an object"
            return
        for key, each in value.items():
            if each is not None:
                yield from item(each, f"{path}.{key}")

    return check


def _one_of(values: list[str]) -> Check:
    known = frozenset(values)

    def check(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
        if not isinstance(value, str) or value not in known:
            yield f"{path}: {value!r} is none of {', '.join(values)}"

    return check


def _plain(kind: type) -> Check:
    wanted = _PLAIN[kind]

    def check(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
        if not isinstance(value, wanted) or (kind is not bool and isinstance(value, bool)):
            yield f"{path}: {value!r} is no {kind.__name__}"

    return check


def _anything(_value: Any, _path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
    return iter(())


def _older(model: type) -> Check:
    """Return the check of an older model of the SDKs, whose members may be deeper on the wire."""
    described: Any = model
    tree: dict[str, Any] = {}
    for attribute, member in described._attribute_map.items():  # noqa: SLF001 - the models' only list of members
        *outer, last = member["key"].split(".")
        rules = described._validation.get(attribute, {})  # noqa: SLF001 - no public name
        branch = tree
        for part in outer:
            branch = branch.setdefault(part, {})
        check = _older_kind(member["type"], model)
        branch[last] = (rules.get("readonly", False), rules.get("required", False), check)
    return _older_branch(tree, model.__name__)


def _older_branch(tree: dict[str, Any], model: str) -> Check:
    fields = {
        key: (False, _has_required(known), _older_branch(known, model)) if isinstance(known, dict) else known
        for key, known in tree.items()
    }

    def check(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
        if isinstance(value, Mapping):
            yield from _members(model, fields, value, path)
        else:
            yield f"{path or 'the body'}: not an object"

    return check


def _has_required(tree: dict[str, Any]) -> bool:
    return any(_has_required(known) if isinstance(known, dict) else known[1] for known in tree.values())


def _older_kind(text: str, model: type) -> Check:
    if text.startswith("["):
        return _list_of(_older_kind(text[1:-1], model))
    if text.startswith("{"):
        return _map_of(_older_kind(text[1:-1], model))
    if text in _NAMES:
        return _plain(_NAMES[text])

    def check(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
        # Not before the check runs: a model may contain itself, and its class is not complete before.
        found = getattr(sys.modules[model.__module__], text, None)
        yield from _check_of(found)(value, path) if isinstance(found, type) else ()

    return check

"""Vendors' own models of a request: botocore's shapes, Azure's classes, Google's descriptors.

Each follows a mutant's path through the model and says whether the new value is one that the model has.
"""

from __future__ import annotations

import enum
import importlib
import types
import typing
from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import botocore.session

from tests.contract.mutants.changes import at

if TYPE_CHECKING:
    from tests.contract.mutants.changes import Mutant, Path


class BotoModel:
    """The input shape of an operation of AWS, by the names on the wire."""

    def __init__(self, service: str, operation: str, *, is_text: bool) -> None:
        self.name = f"botocore's model of {service} {operation}"
        self._is_text = is_text
        model = botocore.session.get_session().get_service_model(service)
        self._top: Any = model.operation_model(operation).input_shape

    def fault(self, mutant: Mutant) -> str:
        """Return why the shape does not allow the field's new value; empty if it does."""
        if mutant.change == "remove":
            is_member = isinstance(mutant.path[-1], str)
            return "the member is required" if is_member and not self.is_optional(mutant) else ""
        shape = self._shape(mutant.path)
        value = at(mutant.document, mutant.path)
        return "" if shape is None else self._mismatch(shape, value)

    def is_optional(self, mutant: Mutant) -> bool:
        """Return whether the structure that has the field lets it be absent."""
        if isinstance(mutant.path[-1], int):
            return False  # an entry of a list is no member
        around = self._shape(mutant.path[:-1])
        if around is None or around.type_name != "structure":
            return around is not None
        return self._name(around, mutant.path[-1]) not in around.required_members

    def _shape(self, path: Path) -> Any:
        shape = self._top
        for part in path:
            if shape is None:
                return None
            if shape.type_name == "structure":
                shape = shape.members.get(self._name(shape, str(part)))
            elif shape.type_name == "list":
                shape = shape.member
            elif shape.type_name == "map":
                shape = shape.value
            else:
                return None
        return shape

    @staticmethod
    def _name(shape: Any, wire: str) -> str:
        """Return botocore's name of a member of that name on the wire."""
        for name, member in shape.members.items():
            own = member.serialization.get("queryName") or member.serialization.get("name") or name
            if wire in (own, own[:1].upper() + own[1:]):
                return str(name)
        return wire

    def _mismatch(self, shape: Any, value: object) -> str:  # noqa: PLR0911 - one for each type
        kind, limits = shape.type_name, shape.metadata
        if kind in {"structure", "map"}:
            return "" if isinstance(value, dict) else "not a structure"
        if kind == "list":
            return "" if isinstance(value, list) else "not a list"
        if kind in {"integer", "long"}:
            number = self._number(value)
            if number is None:
                return "not a number"
            low, high = limits.get("min", -(2**31)), limits.get("max", 2**31 - 1)
            return "" if low <= number <= high else f"{number} is not within {low} and {high}"
        if kind == "boolean":
            return (
                ""
                if value in ((True, False, "true", "false") if self._is_text else (True, False))
                else "no truth value"
            )
        if not isinstance(value, str):
            return "not a text"
        if shape.enum and value not in shape.enum:
            return f"{value!r} is none of the {len(shape.enum)} values"
        longest = limits.get("max")
        return f"longer than {longest} characters" if longest is not None and len(value) > longest else ""

    def _number(self, value: object) -> int | None:
        if self._is_text and isinstance(value, str):
            try:
                return int(value)
            except ValueError:
                return None
        return value if isinstance(value, int) and not isinstance(value, bool) else None


class AzureModel:
    """A class of Azure's SDK, by the names on the wire."""

    def __init__(self, module: str, name: str) -> None:
        self.name = f"the SDK's model {module.split('.')[2]} {name}"
        self._models: Any = importlib.import_module(module)
        self._top: Any = getattr(self._models, name)

    def fault(self, mutant: Mutant) -> str:
        """Return why the class does not allow the field's new value; empty if it does."""
        if mutant.change == "remove":
            return ""  # AKS's classes have no required members below the properties
        kind, is_read_only = self._kind(mutant.path)
        if is_read_only:
            return "the member is read-only"
        return "" if kind is None else self._mismatch(kind, at(mutant.document, mutant.path))

    def is_optional(self, mutant: Mutant) -> bool:
        """Return whether the class lets the member be absent."""
        return isinstance(mutant.path[-1], str)

    def _kind(self, path: Path) -> tuple[Any, bool]:
        kind: Any = self._top
        for part in path:
            found, arguments = typing.get_origin(kind), typing.get_args(kind)
            if isinstance(part, int):
                kind = arguments[0] if found is list else None
            elif found is dict:
                kind = arguments[1]
            elif isinstance(kind, type) and hasattr(kind, "_attr_to_rest_field"):
                kind, is_read_only = _members(kind, self._models).get(part, (None, False))
                if is_read_only:
                    return kind, True
            else:
                return None, False
            kind = _without_none(kind)
        return kind, False

    def _mismatch(self, kind: Any, value: object) -> str:
        found = typing.get_origin(kind)
        if found is list:
            return "" if isinstance(value, list) else "not a list"
        if found is dict or hasattr(kind, "_attr_to_rest_field"):
            return "" if isinstance(value, dict) else "not an object"
        choices = [each for each in typing.get_args(kind) or (kind,) if isinstance(each, type)]
        enums = [each for each in choices if issubclass(each, enum.Enum)]
        if enums:
            known = {str(entry.value) for each in enums for entry in each}
            return (
                ""
                if isinstance(value, str) and value in known
                else f"{value!r} is none of {', '.join(sorted(known))}"
            )
        plain = {str: (str,), int: (int,), float: (int, float), bool: (bool,)}
        allowed = tuple(each for kind in choices for each in plain.get(kind, (object,)))
        is_wrong_truth = isinstance(value, bool) and bool not in choices and object not in allowed
        return f"not a {choices[0].__name__}" if is_wrong_truth or not isinstance(value, allowed) else ""


@cache
def _members(model: Any, models: Any) -> dict[str, tuple[Any, bool]]:
    made = model.__new__(model)
    own = importlib.import_module(model.__module__)
    names = {**vars(models), **vars(own), "_models": models, "_unions": types.SimpleNamespace()}
    found = {}
    for attribute, field in made._attr_to_rest_field.items():
        for base in model.__mro__:
            if attribute in vars(base).get("__annotations__", {}):
                text = base.__annotations__[attribute]
                hint = eval(text, names) if isinstance(text, str) else text  # noqa: S307 - the SDK's own text
                found[field._rest_name] = (_resolved(hint, names), field._visibility == ["read"])
                break
    return found


def _resolved(hint: Any, names: dict[str, Any]) -> Any:
    if isinstance(hint, typing.ForwardRef):
        return eval(hint.__forward_arg__, names)  # noqa: S307 - the SDK's own text
    arguments = typing.get_args(hint)
    if not arguments:
        return hint
    new = tuple(_resolved(each, names) for each in arguments)
    origin = typing.get_origin(hint)
    return reduce(or_, new) if origin in (typing.Union, types.UnionType) else origin[new]


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    rest = tuple(each for each in typing.get_args(kind) if each is not type(None))
    return reduce(or_, rest)


class ProtoModel:
    """A message of Google's, by its JSON names; enums are numbers, as on the wire."""

    def __init__(self, message: Any) -> None:
        self._top = (
            type(message).pb(message).DESCRIPTOR if hasattr(type(message), "pb") else message.DESCRIPTOR
        )
        self.name = f"the descriptor of {self._top.full_name}"

    def fault(self, mutant: Mutant) -> str:
        """Return that an enum has no such number; empty for other fields, whose types the wire keeps."""
        field = self._field(mutant.path)
        if mutant.change == "remove" or field is None or field.enum_type is None:
            return ""
        value = at(mutant.document, mutant.path)
        if isinstance(mutant.path[-1], int) or not isinstance(value, list):
            known = set(field.enum_type.values_by_number)
            return "" if value in known else f"{value} is no number of {field.enum_type.name}"
        return ""

    def is_optional(self, mutant: Mutant) -> bool:
        """Return True: proto3 has no required fields, so that only documents say what must be there."""
        return isinstance(mutant.path[-1], str)

    def _field(self, path: Path) -> Any:
        message, field = self._top, None
        for part in path:
            if isinstance(part, int):
                continue
            if message is None:
                return None
            if message.GetOptions().map_entry:
                return message.fields_by_name["value"]
            field = next((each for each in message.fields if each.json_name == part), None)
            message = field.message_type if field is not None else None
        return field

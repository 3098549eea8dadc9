"""A mypy plugin: models of clouds' SDKs that answer to any name are checked by the fields they have.

Azure's models pass reads on to their `properties`, and Google's take any keyword, each by a method that
returns Any. AWS's are dictionaries of known keys, whose `get` returns an object for any other key. So mypy
alone accepts a misspelt field of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mypy.nodes import ARG_NAMED_OPT, ARG_OPT, ARG_STAR2, Var
from mypy.plugin import Plugin
from mypy.plugins.default import typed_dict_get_callback
from mypy.types import (
    AnyType,
    Instance,
    LiteralType,
    NoneType,
    TypedDictType,
    TypeOfAny,
    UnionType,
    get_proper_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy.plugin import AttributeContext, CheckerPluginInterface, FunctionSigContext, MethodContext
    from mypy.types import FunctionLike, Type

_AZURE, _GOOGLE, _MESSAGE = "azure.mgmt.", "google.cloud.", "proto.message.Message"
_ENUM = "enum.IntEnum"
_PROPERTIES, _MAPPING = "properties", "mapping"
# What messages' lists and maps are, and what is taken in place of them.
_CONTAINERS = {
    "typing.MutableMapping": "typing.Mapping",
    "typing.MutableSequence": "typing.Sequence",
}


class Sdks(Plugin):
    """Gives the SDKs' models the fields that they have, and no others."""

    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type] | None:
        """Check a read that a model answers by `__getattr__`."""
        name = fullname.rpartition(".")[2]
        is_model = fullname.startswith(_AZURE) and ".models." in fullname
        return partial(_flattened, name) if is_model else None

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """Check the key that is looked up in a dictionary of known keys."""
        return _got if fullname == "typing.Mapping.get" else None

    def get_function_signature_hook(
        self, fullname: str
    ) -> Callable[[FunctionSigContext], FunctionLike] | None:
        """Check the keywords with which a model is made."""
        if fullname.startswith(_AZURE) and ".models." in fullname:
            return _declared
        return _message if fullname.startswith(_GOOGLE) and ".types." in fullname else None


def plugin(_version: str) -> type[Plugin]:
    """Return the plugin, as mypy asks for it."""
    return Sdks


def _flattened(name: str, context: AttributeContext) -> Type:
    """Return the type of a field that an Azure model passes on to its properties."""
    of = get_proper_type(context.type)
    if not isinstance(of, Instance) or of.type.has_readable_member(name):
        return context.default_attr_type
    holders = [kept for title, kept in of.type.names.items() if title.endswith(_PROPERTIES)]
    for inner in filter(None, (_instance(holder.type) for holder in holders)):
        found = inner.type.get(name)
        if found is not None and found.type is not None:
            return found.type
    return _unknown(name, context)


def _instance(of: Type | None) -> Instance | None:
    """Return the model that a type allows beside None."""
    proper = get_proper_type(of) if of is not None else None
    choices = proper.items if isinstance(proper, UnionType) else [proper]
    kept = [each for each in map(get_proper_type, filter(None, choices)) if not isinstance(each, NoneType)]
    return kept[0] if len(kept) == 1 and isinstance(kept[0], Instance) else None


def _unknown(name: str, context: AttributeContext) -> Type:
    """Refuse a field."""
    of = get_proper_type(context.type)
    if isinstance(of, Instance) and of.type.has_readable_member(name):
        return context.default_attr_type
    title = of.type.name if isinstance(of, Instance) else str(of)
    context.api.fail(f'"{title}" has no attribute "{name}"', context.context)
    return AnyType(TypeOfAny.from_error)


def _got(context: MethodContext) -> Type:
    """Refuse to get a key that the dictionary cannot have."""
    of = get_proper_type(context.type)
    if isinstance(of, TypedDictType) and context.arg_types and context.arg_types[0]:
        key = get_proper_type(context.arg_types[0][0])
        if isinstance(key, Instance) and key.last_known_value is not None:
            key = key.last_known_value
        if isinstance(key, LiteralType) and key.value not in of.items:
            title = of.fallback.type.name
            context.api.fail(f'TypedDict "{title}" has no key "{key.value}"', context.context)
    return typed_dict_get_callback(context)


def _declared(context: FunctionSigContext) -> FunctionLike:
    """Return the signature of an Azure model's class without the keywords that it would swallow."""
    signature = context.default_signature
    if ARG_STAR2 not in signature.arg_kinds:
        return signature
    kept = [number for number, kind in enumerate(signature.arg_kinds) if kind != ARG_STAR2]
    return signature.copy_modified(
        arg_types=[signature.arg_types[number] for number in kept],
        arg_kinds=[signature.arg_kinds[number] for number in kept],
        arg_names=[signature.arg_names[number] for number in kept],
    )


def _message(context: FunctionSigContext) -> FunctionLike:
    """Return the signature of a message's class: each field is a keyword."""
    signature = context.default_signature
    made = get_proper_type(signature.ret_type)
    if not isinstance(made, Instance):
        return signature
    if not any(base.fullname == _MESSAGE for base in made.type.mro):
        return signature
    fields = {
        name: _taken(kept.node.type, context.api)
        for name, kept in made.type.names.items()
        if isinstance(kept.node, Var) and kept.node.type is not None
    }
    mapping = context.api.named_generic_type("builtins.object", [])
    return signature.copy_modified(
        arg_types=[mapping, *fields.values()],
        arg_kinds=[ARG_OPT, *(ARG_NAMED_OPT for _ in fields)],
        arg_names=[_MAPPING, *fields],
    )


def _taken(field: Type, api: CheckerPluginInterface) -> Type:
    """Return what a message takes for a field: any sequence or mapping, and an enumeration's name."""
    of = get_proper_type(field)
    if not isinstance(of, Instance):
        return field
    if of.type.fullname in _CONTAINERS:
        return api.named_generic_type(_CONTAINERS[of.type.fullname], [_taken(arg, api) for arg in of.args])
    if any(base.fullname == _ENUM for base in of.type.mro):
        return UnionType([of, api.named_generic_type("builtins.str", [])])
    return field

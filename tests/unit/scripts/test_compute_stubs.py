"""The types in typings/ are those of the libraries that they stand for."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from scripts import compute_stubs

TYPINGS = Path(__file__).resolve().parents[3] / "typings"
# Written by hand: what has a stub, and the library's own module.
BY_HAND = {
    "proto/__init__.pyi": "proto",
    "proto/message.pyi": "proto.message",
    "grpc/__init__.pyi": "grpc",
    "google/cloud/storage/__init__.pyi": "google.cloud.storage",
}
# Where the library keeps classes that it does not export.
ELSEWHERE = {
    "IAMConfiguration": "google.cloud.storage.bucket",
    "SoftDeletePolicy": "google.cloud.storage.bucket",
}


def test_compute_engines_stubs_are_those_of_the_sdk() -> None:
    stale = [str(path) for path, text in compute_stubs.stubs().items() if path.read_text() != text]
    assert not stale, "run scripts/compute_stubs.py"


@pytest.mark.parametrize("path", BY_HAND)
def test_what_a_stub_has_its_library_has(path: str) -> None:
    module = import_module(BY_HAND[path])
    missing = [name for name in _names(path) if not _has(module, name)]
    assert not missing


def _names(path: str) -> Iterator[str]:
    """The stub's names: NAME, CLASS.NAME and CLASS.METHOD(PARAMETER."""
    for node in ast.parse((TYPINGS / path).read_text()).body:
        match node:
            case ast.ClassDef(name=name):
                yield name
                yield from (f"{name}.{each}" for part in node.body for each in _members(part))
            case ast.FunctionDef(name=name):
                yield from _members(node)


def _members(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            yield name
        case ast.FunctionDef(name=name, args=args):
            yield name
            yield from (f"{name}({each.arg}" for each in args.kwonlyargs)


def _has(module: ModuleType, name: str) -> bool:
    attribute, _, parameter = name.partition("(")
    title, _, member = attribute.partition(".")
    holder = getattr(import_module(ELSEWHERE[title]) if title in ELSEWHERE else module, title, None)
    if member and not hasattr(holder, member):
        return member in (inspect.getdoc(holder) or "")  # an attribute that is documented
    of = getattr(holder, member) if member else holder
    if of is None or not parameter:
        return of is not None
    taken = inspect.signature(of).parameters
    return parameter in taken or any(each.kind is each.VAR_KEYWORD for each in taken.values())

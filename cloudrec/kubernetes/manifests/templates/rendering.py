"""Renders a typed context to an object. Each context class has one template, found by the class's name.

A template only places values: each through tojson, and each as a whole value. So the document can be computed
in advance, and the rendered text is read back and compared with it. This finds a value that YAML reads as
another type, a value that no template uses, and a repeated key. A value of None removes its key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jinja2 import Environment, Template

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PAIR = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})")
_SLOT = "slot of "


class TemplateError(Exception):
    """A template and its context do not match: an error in cloudrec, not in the user's input."""


@dataclass(frozen=True, kw_only=True)
class TemplateContext:
    """The values of a template: the fields of the class with the template's name.

    Attributes:
        folder: the template's folder below templates/k8s, with a slash at its end.
    """

    folder: ClassVar[str] = ""


def template_name(kind: type[TemplateContext]) -> str:
    """Return the file name of a context's template: indexed_job.yaml.j2 for IndexedJob."""
    return f"{kind.folder}{'_'.join(_WORD.split(kind.__name__)).lower()}.yaml.j2"


def render(context: TemplateContext) -> dict[str, Any]:
    """Return the object that is rendered from a context; TemplateError if the template does not match it."""
    file = template_name(type(context))
    values = {field.name: _plain(getattr(context, field.name)) for field in fields(context)}
    skeleton = _skeleton(file, tuple(values))
    rendered = _load(_template(file).render(values))
    if rendered != _filled(skeleton, values):
        raise TemplateError(f"{file}: the rendered document differs from its values")
    return _without_none(rendered)  # type: ignore[no-any-return] # a mapping, as the skeleton is


def text(objects: Iterable[Mapping[str, Any]]) -> str:
    """Return one YAML document for each object; reading them returns equal objects."""
    return yaml.dump_all(
        [dict(each) for each in objects], Dumper=_Dumper, sort_keys=False, explicit_start=True, width=110
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a context holds
    """Return a value as plain JSON, with the contexts in it rendered."""
    if isinstance(value, TemplateContext):
        return render(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


@cache
def _environment() -> Environment:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - only what renders needs it

    environment = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701 - this is no HTML
    environment.globals.clear()  # jinja's global `namespace` would be used if a field `namespace` is missing
    environment.policies["json.dumps_function"] = _dumps
    return environment


@cache
def _template(file: str) -> Template:
    return _environment().from_string(source(file))


def source(file: str) -> str:
    """Return the text of a template."""
    return resources.files("templates").joinpath("k8s", file).read_text(encoding="utf-8")


@cache
def _skeleton(file: str, names: tuple[str, ...]) -> Any:  # noqa: ANN401 - whatever the template holds
    """Return the document of a template with a placeholder for each value."""
    from jinja2.meta import find_undeclared_variables  # noqa: PLC0415 - only what renders needs it

    if unknown := find_undeclared_variables(_environment().parse(source(file))) - set(names):
        raise TemplateError(f"{file} uses {', '.join(sorted(unknown))}, which its context does not have")
    rendered = _template(file).render({name: _SLOT + name for name in names})
    skeleton = yaml.load(rendered, Loader=_StrictLoader)  # noqa: S506, TID251 - a safe loader that refuses more
    if lost := sorted(set(names) - set(_slots(skeleton))):
        raise TemplateError(f"{file} does not use {', '.join(lost)} of its context")
    return skeleton


def _slots(skeleton: object) -> Iterable[str]:
    if isinstance(skeleton, dict):
        for each in skeleton.values():
            yield from _slots(each)
    elif isinstance(skeleton, list):
        for each in skeleton:
            yield from _slots(each)
    elif isinstance(skeleton, str) and skeleton.startswith(_SLOT):
        yield skeleton.removeprefix(_SLOT)


def _filled(skeleton: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a tree of JSON
    if isinstance(skeleton, dict):
        return {key: _filled(each, values) for key, each in skeleton.items()}
    if isinstance(skeleton, list):
        return [_filled(each, values) for each in skeleton]
    if isinstance(skeleton, str) and skeleton.startswith(_SLOT):
        return values[skeleton.removeprefix(_SLOT)]
    return skeleton


def _without_none(value: Any) -> Any:  # noqa: ANN401 - a tree of JSON
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_none(each) for each in value]
    return value


def _dumps(value: object, **_options: object) -> str:
    """Return JSON that is also YAML: YAML has no surrogate pairs for characters above U+FFFF."""
    return _PAIR.sub(_beyond, json.dumps(value)).replace("\x7f", "\\x7f")


def _beyond(pair: re.Match[str]) -> str:
    code = 0x10000 + ((int(pair[1], 16) - 0xD800) << 10) + (int(pair[2], 16) - 0xDC00)
    return f"\\U{code:08x}"


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses a repeated key in a mapping; PyYAML would keep the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - yaml's own signature
        keys = [key.value for key, _ in node.value]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            raise TemplateError(f"the key {', '.join(twice)} is repeated, {node.start_mark}")
        return super().construct_mapping(node, deep=deep)


def _load(source: str) -> Any:  # noqa: ANN401 - whatever the text holds
    return yaml.load(source, Loader=_Loader)  # noqa: S506, TID251 - a safe loader


_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_SafeDumper):  # type: ignore[misc] # one of two classes
    """Writes texts of several lines as blocks, and repeated values without YAML anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002 - yaml's own signature
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)

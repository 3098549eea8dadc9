"""From a typed context to an object: one template for each class, found by the class's name.

A template only places values: each through tojson, and each as a whole value of its own. So what a template
says with its values put into it can be told in advance, and the text that came out is read back and compared
with that: a value that YAML would take for something else, one that is placed nowhere, and a key that stands
twice are all found here. A value of None takes its key away.
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
    """A template and its context do not fit: a mistake in this program, not in what it was given."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a template may place: the fields of a class of the template's name.

    Attributes:
        folder: where the template is, below templates/k8s, with a slash behind it.
    """

    folder: ClassVar[str] = ""


def template_name(kind: type[Context]) -> str:
    """Return the file of a context's template: IndexedJob's is indexed_job.yaml.j2."""
    return f"{kind.folder}{'_'.join(_WORD.split(kind.__name__)).lower()}.yaml.j2"


def render(context: Context) -> dict[str, Any]:
    """Return the object that a context's template makes of it; TemplateError where the two do not fit."""
    file = template_name(type(context))
    values = {field.name: _plain(getattr(context, field.name)) for field in fields(context)}
    skeleton = _skeleton(file, tuple(values))
    rendered = _load(_template(file).render(values))
    if rendered != _filled(skeleton, values):
        raise TemplateError(f"{file} does not say what was put into it")
    return _without_none(rendered)  # type: ignore[no-any-return] # a mapping, as the skeleton is


def text(objects: Iterable[Mapping[str, Any]]) -> str:
    """Return objects as one YAML document each, which is read back as exactly the same objects."""
    return yaml.dump_all(
        [dict(each) for each in objects], Dumper=_Dumper, sort_keys=False, explicit_start=True, width=110
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a context holds
    """Return a value as JSON has it, contexts within it rendered."""
    if isinstance(value, Context):
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
    environment.globals.clear()  # one is called namespace, and would stand in for a field of that name
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
    """Return what a template says with the name of each field in the place of its value."""
    from jinja2.meta import find_undeclared_variables  # noqa: PLC0415 - only what renders needs it

    if unknown := find_undeclared_variables(_environment().parse(source(file))) - set(names):
        raise TemplateError(f"{file} asks for {', '.join(sorted(unknown))}, which its context has not")
    said = _template(file).render({name: _SLOT + name for name in names})
    skeleton = yaml.load(said, Loader=_StrictLoader)  # noqa: S506 - a safe loader that refuses more
    if lost := sorted(set(names) - set(_slots(skeleton))):
        raise TemplateError(f"{file} places {', '.join(lost)} nowhere")
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
    """Return JSON that is YAML as well, which has another way to write what lies beyond sixteen bits."""
    return _PAIR.sub(_beyond, json.dumps(value)).replace("\x7f", "\\x7f")


def _beyond(pair: re.Match[str]) -> str:
    code = 0x10000 + ((int(pair[1], 16) - 0xD800) << 10) + (int(pair[2], 16) - 0xDC00)
    return f"\\U{code:08x}"


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - yaml's own signature
        keys = [key.value for key, _ in node.value]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            raise TemplateError(f"{', '.join(twice)} stands twice, {node.start_mark}")
        return super().construct_mapping(node, deep=deep)


def _load(source: str) -> Any:  # noqa: ANN401 - whatever the text holds
    return yaml.load(source, Loader=_Loader)  # noqa: S506 - a safe loader


_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_SafeDumper):  # type: ignore[misc] # one of the two that are there
    """Writes texts of several lines as such, and what stands twice in full."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002 - yaml's own signature
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)

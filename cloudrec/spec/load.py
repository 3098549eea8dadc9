"""Reading the spec: defaults, file, environment, flags, in that order; errors name the origin of a value."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from cloudrec.errors import SpecError
from cloudrec.safe_yaml import MOST_BYTES, limited_text, safe_yaml
from cloudrec.spec import DEFAULT_FILE
from cloudrec.spec.models import HIDDEN, Asked, Spec, own_errors
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

_PREFIX = "CLOUDREC_"
_SHOWN = 200  # characters of a value in a message
# pydantic's types of an error about a value that is no mapping
_MAPPING_TYPES = {"model_type", "model_attributes_type", "dict_type", "mapping_type"}

M = TypeVar("M", bound=BaseModel)
KeyPath = tuple[str, ...]
Flags = Mapping[KeyPath, tuple[str, Any]]  # key path -> (the flag's name, its value)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A validated spec with the origin of each value.

    Attributes:
        spec: the spec.
        file: its file; None for none.
        origins: where each value is from, for messages.
        of_file: the keys whose values are the file's.
    """

    spec: Spec
    file: Path | None
    origins: Mapping[KeyPath, str]
    of_file: frozenset[KeyPath] = frozenset()


def load(file: Path | None, *, environment: Mapping[str, str], flags: Flags, folder: Path) -> Loaded:
    """Merge and validate the spec.

    Args:
        file: the spec file; when None, `cloudrec.yaml` in `folder` if there is one.
        environment: variables CLOUDREC_SECTION_KEY, such as CLOUDREC_TRAIN_MAX_RESTARTS.
        flags: the flags on the command line.
        folder: the current directory.

    Raises:
        SpecError: names the key, the value, the limit, its origin and the remedy.
    """
    if file is None and (folder / DEFAULT_FILE).exists():
        file = folder / DEFAULT_FILE
    values, origins = _read(file) if file is not None else ({}, {})
    of_file = set(origins)
    for path, origin, value in [*_from_environment(environment), *_from_flags(flags)]:
        _put(values, path, value)
        origins[path] = origin
        of_file.discard(path)
    spec = validated(Spec, values, origins)
    return Loaded(spec=spec, file=file, origins=origins, of_file=frozenset(of_file))


def validated(model: type[M], values: object, origins: Mapping[KeyPath, str]) -> M:
    """Validate values with a model; one SpecError has all problems."""
    try:
        return model.model_validate(values, context=Asked())
    except ValidationError as error:
        details = own_errors(error)
        complaints = [_complaint(model, detail, origins) for detail in details]
        message, remedy = complaints[0]
        more = [f"{text}; {hint}" if hint else text for text, hint in complaints[1:]]
        keys = tuple(str(detail["loc"][0]) for detail in details if detail["loc"])
        raise SpecError("\n".join([message, *more]), remedy=remedy, keys=keys) from error


def _read(file: Path) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    document = safe_yaml(
        _text(file),
        where=str(file),
        error=SpecError,
        remedy="correct the file; `cloudrec init --print` shows an example",
    )
    values = document.value
    if values is None:
        return {}, {}
    if not isinstance(values, dict):
        raise SpecError(
            f"{file}: holds a {type(values).__name__}, not sections such as `cluster:` and `train:`",
            remedy="`cloudrec init --print` shows a right one",
        )
    origins: dict[KeyPath, str] = {}
    _locate(file, document.root, (), origins)
    return {key: value for key, value in values.items() if value is not None}, origins


def _text(file: Path) -> str:
    try:
        return limited_text(file)
    except UnicodeDecodeError as error:
        raise SpecError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise SpecError(
                f"{file}: too large for a spec; {MOST_BYTES:,} bytes is the limit",
                remedy="name the right file with --file",
            ) from error
        raise SpecError(
            f"cannot read the spec {file}: {error.strerror}",
            remedy="`cloudrec init` writes one, or name another with --file",
        ) from error


def _locate(file: Path, node: yaml.Node | None, path: KeyPath, origins: dict[KeyPath, str]) -> None:
    """Store each key's line; refuse a duplicate key, of which YAML would silently keep the last."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        inner = (*path, str(key.value))
        line = f"{file} line {key.start_mark.line + 1}"
        if inner in origins:
            raise SpecError(
                f"{line}: {'.'.join(inner)} is there twice, first at {origins[inner]}", remedy="keep one"
            )
        origins[inner] = line
        _locate(file, value, inner, origins)


def _from_environment(environment: Mapping[str, str]) -> list[tuple[KeyPath, str, Any]]:
    found: list[tuple[KeyPath, str, Any]] = []
    for section, model in _sections().items():
        prefix = f"{_PREFIX}{section.upper()}_"
        for variable in sorted(environment):
            if not variable.startswith(prefix):
                continue
            key = variable.removeprefix(prefix).lower()
            if model is not None and key not in model.model_fields:
                known = [prefix + name.upper() for name in model.model_fields]
                raise SpecError(f"{variable} is not known", remedy=did_you_mean(variable, known))
            found.append(((section, key), variable, scalar(environment[variable], (section, key))))
    return found


def _sections() -> dict[str, type[BaseModel] | None]:
    """Return each section with its model; None for the trainer's section."""
    sections: dict[str, type[BaseModel] | None] = {}
    for name, field in Spec.model_fields.items():
        if name != "version":
            sections[name] = _model_of(field)
    return sections


def _model_of(field: FieldInfo) -> type[BaseModel] | None:
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def scalar(text: str, path: KeyPath) -> object:
    """Read a variable or a flag as YAML would read it in the file: numbers as numbers, the rest as text.

    Args:
        text: the variable's or flag's value.
        path: the key; if its type is text, 1.30 stays a text.
    """
    try:
        value = safe_yaml(text, where=".".join(path), error=SpecError).value
    except SpecError:
        return text
    return text if value is not None and not isinstance(value, str) and _is_text(path) else value


def _is_text(path: KeyPath) -> bool:
    """Return whether a key of the spec accepts text only."""
    section, *rest = path
    model = _sections().get(section)
    field = model.model_fields.get(rest[0]) if model is not None and len(rest) == 1 else None
    return field is not None and set(_plain_types(field.annotation)) <= {str, NoneType}


def _plain_types(annotation: object) -> Iterator[object]:
    """Yield the types that an annotation allows, without its metadata; of a union, each type."""
    if get_origin(annotation) is Annotated:
        yield from _plain_types(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from _plain_types(each)
    else:
        yield annotation


def _from_flags(flags: Flags) -> list[tuple[KeyPath, str, Any]]:
    return [(path, flag, value) for path, (flag, value) in flags.items()]


def _put(values: dict[str, Any], path: KeyPath, value: object) -> None:
    for step in path[:-1]:
        inner = values.get(step)
        if not isinstance(inner, dict):  # absent, or an empty section
            inner = values[step] = {}
        values = inner
    values[path[-1]] = value


def _complaint(
    model: type[BaseModel], detail: ErrorDetails, origins: Mapping[KeyPath, str]
) -> tuple[str, str | None]:
    path = tuple(str(step) for step in detail["loc"])
    shown = ".".join(path) or "the spec"
    origin = _origin(path, origins)
    where = f"{origin}: " if origin else ""
    if detail["type"] == "extra_forbidden":
        return f"{where}{shown} is not known", did_you_mean(path[-1], _known_keys(model, path[:-1]))
    is_mapping = detail["type"] in _MAPPING_TYPES
    reason = "it must be a mapping" if is_mapping else detail["msg"].removeprefix("Value error, ")
    value = detail.get("input")
    if detail["type"] == "missing":
        return f"{where}{shown} is missing", f"give {shown}"
    if not path:  # it is about several values, and names them
        return f"{where}{reason}", None
    if detail["type"] == HIDDEN:
        return f"{where}{shown} (not printed): {reason}", str(detail["ctx"]["remedy"])
    remedy = f'put it in quotes: "{value}"' if detail["type"] == "string_type" else None
    if detail["type"] == "cloudrec":
        remedy = detail["ctx"]["remedy"]
    return f"{where}{shown} is {_short(value)}: {reason[0].lower()}{reason[1:]}", remedy


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"


def _origin(path: KeyPath, origins: Mapping[KeyPath, str]) -> str | None:
    for length in range(len(path), 0, -1):
        if path[:length] in origins:
            return origins[path[:length]]
    return None


def _known_keys(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    for step in path:
        field = model.model_fields.get(step)
        inner = _model_of(field) if field is not None else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)

"""Write docs/settings.md: every key of the specification and of the settings of providers and launchers.

    python -m scripts.settings_reference
    python -m scripts.site                    # this and the other generated pages

The page is generated from the models that read these keys; a test compares both.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cloudrec.launchers.kubernetes.context import Settings as KubernetesSetup
from cloudrec.launchers.ray.settings import RaySettings
from cloudrec.launchers.slurm.settings import SlurmSettings
from cloudrec.providers.aws.settings import AwsSettings
from cloudrec.providers.azure.settings import AzureSettings
from cloudrec.providers.gcp.settings import GcpSettings
from cloudrec.providers.kubernetes.settings import KubernetesSettings
from cloudrec.providers.local.settings import LocalSettings
from cloudrec.spec.models import ClusterSpec, TrainSpec
from scripts.site.text import bullet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
_HEAD = """# Settings

Every key of `cloudrec.yaml` but [those of the trainer](reference/trainer-flags.md). Set a key in
the file, with `--set KEY=VALUE`, or with a variable: `CLOUDREC_TRAIN_MAX_RESTARTS` sets
`train.max_restarts`. This page is generated from the models that read the keys
(`python -m scripts.site`).
"""
_SECTIONS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("The cluster", "cluster", ClusterSpec),
    ("The run", "train", TrainSpec),
    ("Provider aws", "cluster.settings", AwsSettings),
    ("Provider azure", "cluster.settings", AzureSettings),
    ("Provider gcp", "cluster.settings", GcpSettings),
    ("Provider kubernetes", "cluster.settings", KubernetesSettings),
    ("Provider local", "cluster.settings", LocalSettings),
    ("Launcher ray", "train.settings", RaySettings),
    ("Launcher slurm", "train.settings", SlurmSettings),
)
# bool before int, of which it is a subclass
_KINDS = {
    str: "text",
    bool: "true or false",
    int: "integer",
    float: "number",
    tuple: "list",
    list: "list",
    dict: "mapping",
}


def page() -> str:
    """Return the whole page."""
    sections = [_section(title, _rows(prefix, model)) for title, prefix, model in _SECTIONS]
    sections.append(
        _section("Launchers torchrun, pytorchjob, trainjob, jobset, rayjob", _documented(KubernetesSetup))
    )
    return _HEAD + "".join(sections)


def _section(title: str, lines: Iterable[str]) -> str:
    return f"\n## {title}\n\n" + "".join(lines)


def _rows(prefix: str, model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield _entry(
            f"{prefix}.{name}", [kind(field.annotation), *limits(field)], default(field), field.description
        )


def _documented(model: type[KubernetesSetup]) -> Iterator[str]:
    """Yield the entries of a dataclass, whose docstring describes its fields."""
    hints, text = typing.get_type_hints(model), inspect.cleandoc(model.__doc__ or "")
    for field in dataclasses.fields(model):
        # its line, and the lines that continue it, which have a deeper indent
        (found,) = re.findall(rf"^ {{4}}{field.name}: (.*(?:\n {{5,}}.*)*)", text, re.MULTILINE)
        meaning = " ".join(found.split())
        known = "" if field.default == "" else f"`{json.dumps(field.default)}`"
        yield _entry(f"train.settings.{field.name}", [kind(hints[field.name])], known, meaning.rstrip("."))


def _entry(key: str, facts: list[str], known: str, meaning: str | None) -> str:
    """Return a key with its type, limits and default, and below it what it means."""
    told = ", ".join(
        [*facts, *([f"default {known}"] if known and known != "required" else [known] if known else [])]
    )
    return bullet(f"`{key}` ({told}): {meaning or ''}")


def kind(annotation: Any) -> str:  # noqa: ANN401 - any annotation
    """Return what a value of an annotation is, in words."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return kind(typing.get_args(annotation)[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(annotation))
    if origin in {typing.Union, types.UnionType}:
        kinds = [kind(each) for each in typing.get_args(annotation) if each is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    found = origin or annotation
    return next((words for known, words in _KINDS.items() if issubclass(found, known)), "mapping")


def limits(field: FieldInfo) -> list[str]:
    """Return the limits of a value, such as `> 0`, of the field and of the first type within."""
    found = [*field.metadata]
    for inner in typing.get_args(field.annotation):
        if typing.get_origin(inner) is Annotated:
            found += [part for each in inner.__metadata__ for part in getattr(each, "metadata", [each])]
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    return [
        f"{sign} {getattr(each, name)}"
        for each in found
        for name, sign in signs.items()
        if hasattr(each, name)
    ]


def default(field: FieldInfo) -> str:
    """Return a field's default as code; empty where there is none."""
    if field.is_required():
        return "required"
    if field.default_factory_takes_validated_data:
        return ""  # it depends on other keys; the description says how
    value = field.get_default(call_default_factory=True)
    if field.default_factory is not None and isinstance(value, str):
        return "from the environment"  # such as the user's name, which this page must not depend on
    if value is None or value in ("", (), {}):
        return ""
    return f"`{json.dumps(value, default=str)}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""Rendering: a template must match its context, and printed manifests equal applied ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudrec.kubernetes.manifests import TemplateContext, TemplateError, render, text
from cloudrec.kubernetes.manifests.templates import contexts, pods
from cloudrec.kubernetes.manifests.templates.rendering import source, template_name
from tests.unit.kubernetes_manifests.support_matrix import matrix


def _kinds(kind: type[TemplateContext] = TemplateContext) -> set[type[TemplateContext]]:
    below = {each for module in (contexts, pods) for each in vars(module).values() if isinstance(each, type)}
    return {
        each for each in below if issubclass(each, kind) and each not in (TemplateContext, contexts.Named)
    }


def test_every_template_has_exactly_one_context() -> None:
    there = {path.name for path in resources.files("templates").joinpath("k8s").iterdir()}
    assert {template_name(kind) for kind in _kinds()} == {name for name in there if name.endswith(".j2")}


def test_templates_insert_whole_values_without_logic() -> None:
    for kind in _kinds():
        template = source(template_name(kind))
        assert "{%" not in template, kind
        for placed in re.findall(r"{{.*?}}", template):
            assert re.fullmatch(r"{{ [a-z_]+ \| tojson }}", placed), (kind, placed)


@dataclass(frozen=True, kw_only=True)
class Namespace(TemplateContext):
    """A context of a template, with a field that the template does not use."""

    name: str
    labels: dict[str, str]
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HeadlessService(TemplateContext):
    """A context of a template, without the fields that the template uses."""

    name: str
    selector: dict[str, str]
    port: int


def test_an_unused_field_is_detected() -> None:
    with pytest.raises(TemplateError, match=r"namespace\.yaml\.j2 does not use finalizers"):
        render(Namespace(name="n", labels={}))


def test_a_missing_value_is_detected() -> None:
    with pytest.raises(TemplateError, match="uses labels, namespace, which"):
        render(HeadlessService(name="n", selector={}, port=1))


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_AWKWARD = st.sampled_from(
    ["", "null", "no", "1e3", "0x10", "2026-11-21", "{{ x }}", "'\"", "a: b", "# c", "\U0001f600"]
)


@given(st.dictionaries(st.one_of(_AWKWARD, _TEXTS), st.one_of(_AWKWARD, _TEXTS), max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_text_is_rendered_unchanged(data: dict[str, str]) -> None:
    made = render(contexts.ConfigMap(name="n", namespace="m", labels={}, data=data))
    assert made["data"] == data
    assert yaml.safe_load(text([made])) == made


def test_a_value_of_none_removes_its_key_and_an_empty_value_does_not() -> None:
    account = contexts.ServiceAccount(name="n", namespace="m", labels={}, annotations=None)
    assert render(account)["metadata"] == {"name": "n", "namespace": "m", "labels": {}}


def test_the_printed_manifests_are_the_applied_ones() -> None:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for name, found in matrix():
        if name.startswith(("aws-p5-", "gcp-a3-mega")):
            printed = text(found)
            assert list(yaml.load_all(printed, Loader=loader)) == list(found)
            assert "&id" not in printed, "nothing is an alias of something else"

"""A template and its context fit, or nothing is rendered; and what is printed is what would be applied."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudrec.manifests import Context, TemplateError, contexts, pods, render, text
from cloudrec.manifests.rendering import source, template_name
from tests.unit.manifests.support_matrix import matrix


def _kinds(kind: type[Context] = Context) -> set[type[Context]]:
    below = {each for module in (contexts, pods) for each in vars(module).values() if isinstance(each, type)}
    return {each for each in below if issubclass(each, kind) and each not in (Context, contexts.Named)}


def test_there_is_one_template_for_each_context_and_the_other_way_round() -> None:
    there = {path.name for path in resources.files("templates").joinpath("k8s").iterdir()}
    assert {template_name(kind) for kind in _kinds()} == {name for name in there if name.endswith(".j2")}


def test_templates_place_whole_values_and_decide_nothing() -> None:
    for kind in _kinds():
        template = source(template_name(kind))
        assert "{%" not in template, kind
        for placed in re.findall(r"{{.*?}}", template):
            assert re.fullmatch(r"{{ [a-z_]+ \| tojson }}", placed), (kind, placed)


@dataclass(frozen=True, kw_only=True)
class Namespace(Context):
    """Of the name of a template, with a field that it does not place."""

    name: str
    labels: dict[str, str]
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HeadlessService(Context):
    """Of the name of a template, without all that it places."""

    name: str
    selector: dict[str, str]
    port: int


def test_a_field_that_is_placed_nowhere_is_found() -> None:
    with pytest.raises(TemplateError, match=r"namespace\.yaml\.j2 places finalizers nowhere"):
        render(Namespace(name="n", labels={}))


def test_a_value_that_is_not_there_is_found() -> None:
    with pytest.raises(TemplateError, match="asks for labels, namespace, which"):
        render(HeadlessService(name="n", selector={}, port=1))


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_AWKWARD = st.sampled_from(
    ["", "null", "no", "1e3", "0x10", "2026-11-21", "{{ x }}", "'\"", "a: b", "# c", "\U0001f600"]
)


@given(st.dictionaries(st.one_of(_AWKWARD, _TEXTS), st.one_of(_AWKWARD, _TEXTS), max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_text_comes_through_as_it_is(data: dict[str, str]) -> None:
    made = render(contexts.ConfigMap(name="n", namespace="m", labels={}, data=data))
    assert made["data"] == data
    assert yaml.safe_load(text([made])) == made


def test_what_is_none_takes_its_key_away_and_what_is_empty_stays() -> None:
    account = contexts.ServiceAccount(name="n", namespace="m", labels={}, annotations=None)
    assert render(account)["metadata"] == {"name": "n", "namespace": "m", "labels": {}}


def test_what_is_printed_is_what_is_applied() -> None:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for name, found in matrix():
        if name.startswith(("aws-p5-", "gcp-a3-mega")):
            printed = text(found)
            assert list(yaml.load_all(printed, Loader=loader)) == list(found)
            assert "&id" not in printed, "nothing is an alias of something else"

"""JSON from elsewhere is read within limits, and everything else is one error."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudrec_contract.safe_json import DEEPEST, UnsafeJsonError, safe_json, safe_object

REFUSED = [
    ("", "is not JSON"),
    ("nul", "is not JSON"),
    ('{"a": 1', "is not JSON"),
    (b"\xff\xfe", "is not JSON"),
    ("NaN", "not finite"),
    ("[1e999]", "not finite"),
    ("-Infinity", "not finite"),
    ("9" * 79, "79 digits"),
    ("9" * 100_000, "digits"),
    ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "nested deeper"),
    ('{"a":' * 5000 + "1" + "}" * 5000, "nested deeper"),
    ("[" * 1_000_000, "nested deeper"),
    ('"\\ud800"', "surrogates"),
    ('"é\\udc00"', "surrogates"),
    ('"\ud800"', "surrogates"),
    (" " * 1001, "1,000 is the limit"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_a_text_outside_the_limits_is_refused_with_the_reason(text: str | bytes, reason: str) -> None:
    most = 1000 if len(text) == 1001 else 2_000_000
    with pytest.raises(UnsafeJsonError, match=reason):
        safe_json(text, most=most)


@pytest.mark.parametrize(
    "text",
    ['{"a": [1, 2.5, null, true, "x"]}', '"\\ud83d\\ude00"', "9" * 78, "[" * DEEPEST + "]" * DEEPEST, '"é"'],
)
def test_json_within_the_limits_is_what_the_standard_library_reads(text: str) -> None:
    assert safe_json(text) == safe_json(text.encode()) == json.loads(text)


def test_a_number_that_is_not_finite_is_unknown_where_a_reader_wants_the_other_values() -> None:
    text = '{"loss": NaN, "auc": -Infinity, "step": 3, "rows": ' + "9" * 100 + "}"
    assert safe_object(text, numbers="unknown") == {"loss": None, "auc": None, "step": 3, "rows": None}
    assert math.isnan(safe_object('{"loss": NaN}', numbers="any")["loss"])


@pytest.mark.parametrize(
    ("text", "kind"), [("[]", "list"), ("null", "NoneType"), ('"a"', "str"), ("1", "int")]
)
def test_a_value_that_is_no_object_is_refused_by_its_type(text: str, kind: str) -> None:
    with pytest.raises(UnsafeJsonError, match=f"it holds a {kind}, not an object"):
        safe_object(text)


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.text(), st.binary(), st.text(alphabet='{}[]",:0123456789.eE+-\\u dNaInfty')))
def test_any_text_is_a_value_that_can_be_written_again_or_one_error(text: str | bytes) -> None:
    try:
        value = safe_json(text)
    except UnsafeJsonError:
        return
    assert safe_json(json.dumps(value, allow_nan=False, ensure_ascii=False).encode()) == value

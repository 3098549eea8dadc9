"""A run's spec: its file, its names and its validation."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudrec.errors import DataError, SpecError
from cloudrec.launchers.base import runspec as module
from cloudrec.launchers.base.runspec import RunSpec, new_run_name

SPEC = RunSpec(
    name="dlrm-1",
    cluster="dev",
    nproc_per_node=2,
    trainer_config={"batch_size": 512, "layers": [64, 32], "nested": {"a": None}},
    trainer_flags=("--learning_rate", "0.1"),
    environment={"A": "b"},
    versions={"cloudrec": "0.1.0"},
)


def test_a_spec_round_trips_through_its_file() -> None:
    assert RunSpec.from_json(SPEC.to_json()) == SPEC


def test_a_spec_of_an_earlier_version_names_its_nodes_differently() -> None:
    document = json.loads(replace(SPEC, nodes=3).to_json())
    document["nnodes"] = document.pop("nodes")
    assert RunSpec.from_json(json.dumps(document)).nodes == 3


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a.b", "a/b", "ä", "a" * 64, "a\n"])
def test_a_name_that_is_not_a_valid_host_name_part_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="name"):
        replace(SPEC, name=name)


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a" * 63])
def test_a_name_that_is_a_valid_host_name_part_is_accepted(name: str) -> None:
    assert replace(SPEC, name=name).name == name


def test_generated_names_are_valid_and_unique_within_a_second() -> None:
    now = datetime(2026, 11, 20, 14, 22, 33, tzinfo=UTC)
    names = {new_run_name(now) for _ in range(5)}
    assert len(names) > 1
    assert all(replace(SPEC, name=name).name.startswith("dlrm-20261120-142233-") for name in names)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nproc_per_node", 0),
        ("nproc_per_node", "2"),
        ("nproc_per_node", True),
        ("nodes", -1),
        ("max_restarts", -1),
        ("stop_grace_s", float("nan")),
        ("stop_grace_s", 0),
        ("trainer_command", ()),
        ("environment", {"environment=": "x"}),
        ("environment", {"environment": "a\0b"}),
    ],
)
def test_an_invalid_value_is_refused_by_name(field: str, value: object) -> None:
    changes: dict[str, Any] = {field: value}
    with pytest.raises(SpecError, match=field):
        replace(SPEC, **changes)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ('{"schema_version": 1, "na', "not JSON"),
        ("[]", "a list, not an object"),
        ("{}", "schema version is None"),
        ('{"schema_version": 2, "name": "a"}', "schema version is 2"),
        ('{"schema_version": 1}', "does not describe a run"),
        ('{"schema_version": 1, "name": 3}', "does not describe a run"),
        ('{"schema_version": 1, "name": "a", "colour": 1}', "unknown keys: colour"),
        ('{"schema_version": 1, "name": "a", "nproc_per_node": "two"}', "nproc_per_node is 'two'"),
    ],
)
def test_a_damaged_spec_is_reported_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        RunSpec.from_json(text)


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 2**70),
    st.floats(),
    st.sampled_from(["", "a", "dlrm-1", "local", "1"]),
    st.lists(st.one_of(st.just("a"), st.just(1)), max_size=2),
    st.dictionaries(st.sampled_from(["A", "", "b=c"]), st.one_of(st.just("b"), st.just(1)), max_size=2),
)


@given(st.dictionaries(st.sampled_from([each.name for each in fields(RunSpec)]), _VALUES, max_size=4))
@settings(max_examples=300)
def test_specs_that_need_no_conversion_are_read_as_pydantic_reads_them(changes: dict[str, Any]) -> None:
    document = {**json.loads(SPEC.to_json()), **changes}
    document.pop("trainer_settings", None)
    text = json.dumps(document)

    def read() -> RunSpec | str:
        try:
            return RunSpec.from_json(text)
        except DataError as error:
            return error.message

    quick = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_plain", lambda _document: None)
        assert read() == quick


def test_specs_of_this_machines_runs_are_read_without_pydantic() -> None:
    text = json.dumps(SPEC.to_json())
    code = (
        "import sys; from cloudrec.launchers.base.runspec import RunSpec; "
        f"RunSpec.from_json({text}); assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


def test_the_file_has_its_schema_version() -> None:
    assert json.loads(SPEC.to_json())["schema_version"] == 1

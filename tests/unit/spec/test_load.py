"""Loading of the spec: precedence, validation and error messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from cloudrec.errors import SpecError
from cloudrec.spec.load import Flags, Loaded, load, validated


def spec_file(folder: Path, text: str) -> Path:
    path = folder / "cloudrec.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, text: str = "", environment: dict[str, str] | None = None, **flags: Any) -> Loaded:
    file = spec_file(folder, text)
    given: Flags = {("train", key): (f"--{key.replace('_', '-')}", value) for key, value in flags.items()}
    return load(file, environment=environment or {}, flags=given, folder=folder)


def test_flags_override_the_environment_the_file_and_the_defaults_in_this_order(tmp_path: Path) -> None:
    text = "train: {max_restarts: 1}"
    environment = {"CLOUDREC_TRAIN_MAX_RESTARTS": "2"}
    assert loaded(tmp_path).spec.train.max_restarts == 3
    assert loaded(tmp_path, text).spec.train.max_restarts == 1
    assert loaded(tmp_path, text, environment).spec.train.max_restarts == 2
    assert loaded(tmp_path, text, environment, max_restarts=4).spec.train.max_restarts == 4


def test_the_file_in_the_current_folder_is_found(tmp_path: Path) -> None:
    spec_file(tmp_path, "cluster: {name: mine}")
    assert load(None, environment={}, flags={}, folder=tmp_path).spec.cluster.title == "mine"


def test_no_file_is_needed(tmp_path: Path) -> None:
    spec = load(None, environment={}, flags={}, folder=tmp_path).spec
    assert (spec.cluster.title, spec.cluster.provider) == ("local", "local")


def test_the_shipped_example_is_valid() -> None:
    example = Path(__file__).parents[3] / "templates" / "specs" / "cloudrec.yaml"
    assert load(example, environment={}, flags={}, folder=Path()).spec.trainer["num_epochs"] == 2


@pytest.mark.parametrize(
    ("text", "says", "remedy"),
    [
        (
            "train: {max_restart: 3}",
            r"line 1: train\.max_restart is not known",
            "did you mean 'max_restarts'",
        ),
        ("trian: {}", r"line 1: trian is not known", "did you mean 'train'"),
        ("train:\n  nproc_per_node: 0", r"line 2: train\.nproc_per_node is 0: .*greater than 0", None),
        ("train: {nproc_per_node: 5000}", r"nproc_per_node is 5000: .*less than or equal to 1024", None),
        ("train: {nproc_per_node: two}", r"nproc_per_node is 'two': .*valid integer", None),
        ("train: {max_restarts: -1}", r"max_restarts is -1: .*greater than or equal to 0", None),
        ("train: {max_restarts: true}", r"max_restarts is True: .*valid integer", None),
        ("cluster: {name: Not_A_Label}", r"cluster\.name is 'Not_A_Label': may hold only a-z", None),
        ("cluster: {name: " + "a" * 41 + "}", r"has 41 characters; 40 is the limit", None),
        ("train: 5", r"line 1: train is 5: it must be a mapping$", None),
        ("train: {env: 5}", r"line 1: train\.env is 5: it must be a mapping$", None),
        ("cluster: {settings: [a]}", r"line 1: cluster\.settings is \['a'\]: it must be a mapping$", None),
        ("cluster: {access: foo}", r"access is 'foo': it is no IPv4 address or block$", "203.0.113.7"),
        ("version: 2", r"version is 2: input should be 1", None),
        ("- a\n- b", r"holds a list, not sections", "cloudrec init --print"),
        ("train: {a: 1", r"line 1: not valid YAML", "cloudrec init --print"),
        ("train: {}\ntrain: {}", r"line 2: train is there twice, first at .* line 1", "keep one"),
    ],
)
def test_an_invalid_file_is_refused_with_the_location_and_a_remedy(
    tmp_path: Path, text: str, says: str, remedy: str | None
) -> None:
    with pytest.raises(SpecError, match=says) as caught:
        loaded(tmp_path, text)
    if remedy is not None:
        assert caught.value.remedy is not None
        assert remedy in caught.value.remedy


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        loaded(tmp_path, "train: {nproc_per_node: 0, max_restarts: -1}")
    assert "nproc_per_node" in caught.value.message
    assert "max_restarts" in caught.value.message


@pytest.mark.parametrize("name", ["My Cluster", "", "a" * 80])
def test_a_wrong_name_is_one_error_without_those_that_follow_from_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError) as caught:
        loaded(tmp_path, f'cluster: {{name: "{name}"}}')
    assert caught.value.message.count("\n") == 0
    assert "cluster.name" in caught.value.message
    assert caught.value.keys == ("cluster",)


def test_a_wrong_flag_or_variable_is_named_as_the_user_wrote_it(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^--nproc-per-node: train\.nproc_per_node is 0"):
        loaded(tmp_path, nproc_per_node=0)
    with pytest.raises(SpecError, match=r"^CLOUDREC_TRAIN_NPROC_PER_NODE: .* is 'many'"):
        loaded(tmp_path, environment={"CLOUDREC_TRAIN_NPROC_PER_NODE": "many"})


def test_a_misspelt_variable_is_refused_with_the_closest_match(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="CLOUDREC_TRAIN_MAX_RESTART is not known") as caught:
        loaded(tmp_path, environment={"CLOUDREC_TRAIN_MAX_RESTART": "1"})
    assert caught.value.remedy == "did you mean 'CLOUDREC_TRAIN_MAX_RESTARTS'?"


def test_a_missing_binary_or_huge_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot read the spec .*absent\.yaml: No such file"):
        load(tmp_path / "absent.yaml", environment={}, flags={}, folder=tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"train: \xff\xfe")
    with pytest.raises(SpecError, match="not UTF-8 text"):
        load(binary, environment={}, flags={}, folder=tmp_path)
    huge = tmp_path / "huge.yaml"
    huge.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(SpecError, match="too large for a spec"):
        load(huge, environment={}, flags={}, folder=tmp_path)


def test_keys_of_the_trainer_are_passed_through(tmp_path: Path) -> None:
    spec = loaded(tmp_path, "trainer: {batch_size: 8}", {"CLOUDREC_TRAINER_SEED": "7"}).spec
    assert dict(spec.trainer) == {"batch_size": 8, "seed": 7}


def test_an_error_about_several_values_does_not_list_all_of_them() -> None:
    class Pair(BaseModel):
        first: int
        second: int

        @model_validator(mode="after")
        def _apart(self) -> Pair:
            if self.first == self.second:
                raise ValueError("first and second are the same")
            return self

    with pytest.raises(SpecError, match=r"^first and second are the same$"):
        validated(Pair, {"first": 1, "second": 1}, {})


def test_a_version_is_a_string_and_keeps_its_zeros(tmp_path: Path) -> None:
    environment = {"CLOUDREC_CLUSTER_KUBERNETES_VERSION": "1.30"}
    assert (
        load(None, environment=environment, flags={}, folder=tmp_path).spec.cluster.kubernetes_version
        == "1.30"
    )
    with pytest.raises(SpecError, match=r"kubernetes_version is 1\.3: ") as error:
        loaded(tmp_path, "cluster: {kubernetes_version: 1.30}")
    assert error.value.remedy == 'put it in quotes: "1.3"'


@pytest.mark.parametrize(
    ("provider", "nodes"), [("aws", 2), ("azure", 2), ("gcp", 2), ("local", 1), ("kubernetes", 1)]
)
def test_a_cluster_has_two_nodes_by_default_where_they_are_created(
    provider: str, nodes: int, tmp_path: Path
) -> None:
    given = loaded(tmp_path, f"cluster: {{provider: {provider}}}")
    assert given.spec.cluster.nodes == nodes
    given = loaded(tmp_path, f"cluster: {{provider: {provider}, nodes: 3}}")
    assert given.spec.cluster.nodes == 3

"""Variables and references to secrets: what is accepted, and what is refused with a remedy."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudrec.app.run.variables import check_secrets, passed_on, variables
from cloudrec.errors import PreflightError, SpecError
from cloudrec.launchers import launcher
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.kubernetes.secrets import references
from cloudrec.launchers.ray.checks import refuse_secrets as refuse_for_ray
from cloudrec.launchers.ray.settings import Head
from cloudrec.launchers.slurm.checks import refuse_secrets as refuse_for_slurm
from cloudrec.launchers.slurm.settings import SlurmSettings
from cloudrec.spec.load import Loaded, load

RUN = RunSpec(name="one", secrets={"WANDB_API_KEY": "MY_KEY"})


def _loaded(folder: Path, **train: Any) -> Loaded:
    flags: dict[tuple[str, ...], tuple[str, Any]] = {
        ("train", name): (f"--{name}", value) for name, value in train.items()
    }
    return load(None, environment={}, flags=flags, folder=folder)


def test_variables_of_files_come_before_those_that_are_given(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("# a comment\n\nA=1\nexport B='b c'\nC=\n", encoding="utf-8")
    two.write_text('A="2"\nURL=http://x?a=b\n', encoding="utf-8")
    loaded = _loaded(tmp_path, env={"C": "3"}, env_file=[str(one), str(two)])
    assert variables(loaded) == {"A": "2", "B": "b c", "C": "3", "URL": "http://x?a=b"}


@pytest.mark.parametrize(
    "name",
    [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "TORCHELASTIC_RUN_ID",
        "CLOUDREC_RESULTS",
        "PYTHONSAFEPATH",
    ],
)
def test_names_that_the_contract_owns_are_refused(tmp_path: Path, name: str) -> None:
    for train in ({"env": {name: "1"}}, {"secrets": {name: "X"}}):
        with pytest.raises(SpecError, match=f"{name} is set by cloudrec or torchrun"):
            variables(_loaded(tmp_path, **train))


@pytest.mark.parametrize("name", ["", "A B", "1A", "A-B"])
def test_what_is_no_name_of_a_variable_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match="cannot be the name of a variable"):
        variables(_loaded(tmp_path, env={name: "1"}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WANDB_API_KEY", "c4n4ry"),
        ("MLFLOW_TRACKING_PASSWORD", "c4n4ry"),
        ("HF_TOKEN", "c4n4ry"),
        ("NOTE", "AKIA" + "C4N4RY" * 2 + "ABCD"),
        ("NOTE", "ghp_" + "c4n4ry" * 5),
        ("NOTE", "postgres://user:c4n4ry@host/db"),
        ("NOTE", "-----BEGIN RSA PRIVATE KEY-----c4n4ry"),
    ],
)
def test_a_value_that_looks_like_a_secret_is_refused_without_being_shown(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(SpecError, match=f"{name} looks like a secret") as error:
        variables(_loaded(tmp_path, env={name: value}))
    assert f"--secret {name}" in str(error.value.remedy)
    assert "c4n4ry" not in f"{error.value} {error.value.remedy}".lower()


@pytest.mark.parametrize(
    "name",
    ["TOKENIZERS_PARALLELISM", "MAX_TOKENS", "MLFLOW_TRACKING_URI", "TOKENIZER", "KEYS", "HF_TOKEN_PATH"],
)
def test_usual_variables_are_not_taken_for_secrets(tmp_path: Path, name: str) -> None:
    assert variables(_loaded(tmp_path, env={name: "http://h:5000"})) == {name: "http://h:5000"}


def test_a_line_that_is_no_variable_is_an_error_that_does_not_show_it(tmp_path: Path) -> None:
    file = tmp_path / "vars"
    file.write_text("A=1\nc4n4ry\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"vars line 2 is not NAME=VALUE") as error:
        variables(_loaded(tmp_path, env_file=[str(file)]))
    assert "c4n4ry" not in str(error.value)
    with pytest.raises(SpecError, match="cannot read"):
        variables(_loaded(tmp_path, env_file=[str(tmp_path / "absent")]))


def test_a_variable_is_given_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="A is given as a variable and as a secret"):
        variables(_loaded(tmp_path, env={"A": "1"}, secrets={"A": "A"}))


def test_a_secret_of_this_machine_must_be_set_and_is_passed_on_for_the_start_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local = launcher("local")
    with pytest.raises(PreflightError, match="the variable MY_KEY is not set here"):
        check_secrets(RUN, local, {})
    with pytest.raises(SpecError, match="names a key of a Kubernetes Secret"):
        check_secrets(replace(RUN, secrets={"A": "s/k"}), local, {})
    monkeypatch.setenv("MY_KEY", "c4n4ry")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    check_secrets(RUN, local, os.environ)
    with passed_on(RUN, local):
        assert os.environ["WANDB_API_KEY"] == "c4n4ry"
    assert "WANDB_API_KEY" not in os.environ
    check_secrets(RUN, launcher("torchrun"), {})  # the value is in the cluster


def test_no_value_is_sent_to_a_login_node_or_to_a_running_ray_cluster() -> None:
    with pytest.raises(Exception, match="is not sent to me@login"):
        refuse_for_slurm(RUN, SlurmSettings(host="me@login"))
    refuse_for_slurm(RUN, SlurmSettings())
    with pytest.raises(SpecError, match="is not sent to the Ray cluster"):
        refuse_for_ray(RUN, Head(url="http://head:8265"))
    refuse_for_ray(RUN, None)


def test_references_name_a_secret_and_a_key() -> None:
    assert references({"A": "wandb/api-key", "B": "B"}) == {
        "A": {"secretKeyRef": {"name": "wandb", "key": "api-key"}},
        "B": {"secretKeyRef": {"name": "cloudrec-secrets", "key": "B"}},
    }
    for source in ("Wandb/k", "a/b/c", "s/", "s/a b", "/k"):
        with pytest.raises(SpecError, match="which Kubernetes refuses as a name"):
            references({"A": source})

"""The module of a user's model is sent to nodes that do not read this machine's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec.app.run.model_source import KEY, MOST_BYTES, with_model_source
from cloudrec.errors import SpecError
from cloudrec.spec.load import Loaded, load

SOURCE = "def build(inputs):\n    return inputs\n"


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model.py").write_text(SOURCE)
    return load(None, environment={}, flags={}, folder=tmp_path)


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        ({"model": "my_model:build"}, ()),
        ({}, ("--model", "my_model:build")),
        ({"model": "dlrm"}, ("--model=my_model:build",)),
    ],
)
def test_the_module_is_part_of_the_configuration(
    loaded: Loaded, config: dict[str, str], flags: tuple[str, ...]
) -> None:
    assert with_model_source(config, flags, loaded) == {**config, KEY: SOURCE}


def test_the_module_is_in_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "my_model.py").write_text(SOURCE)
    (tmp_path / "run.yaml").write_text("train: {workdir: code}\n")
    loaded = load(tmp_path / "run.yaml", environment={}, flags={}, folder=Path("/"))
    assert with_model_source({"model": "my_model:build"}, (), loaded)[KEY] == SOURCE


@pytest.mark.parametrize("model", ["dlrm", "installed:build", "a.b:build", "../my_model:build", ":build", 3])
def test_other_models_are_left_alone(loaded: Loaded, model: object) -> None:
    assert with_model_source({"model": model}, (), loaded) == {"model": model}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"def build(:\n", r"my_model\.py:1: no Python module"),
        (b"\xff\xfe", "no Python module"),
        (b"x = '\x00'", "no Python module"),
        (b"#" * (MOST_BYTES + 1), "more than 200,000 bytes"),
    ],
)
def test_a_file_that_is_no_module_is_refused_before_the_launch(
    loaded: Loaded, content: bytes, said: str
) -> None:
    Path("my_model.py").write_bytes(content)
    with pytest.raises(SpecError, match=said):
        with_model_source({"model": "my_model:build"}, (), loaded)


def test_a_folder_of_that_name_is_refused(loaded: Loaded) -> None:
    Path("my_model.py").unlink()
    Path("my_model.py").mkdir()
    with pytest.raises(SpecError, match="cannot be read"):
        with_model_source({"model": "my_model:build"}, (), loaded)

"""A model whose module is a text of the configuration, as pods get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.base.arguments import make_config
from trainer.base.errors import ConfigError
from trainer.models.registry import find_factory
from trainer.serving.scorer import scoring_config


def test_the_factory_is_made_of_the_text_and_not_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texted.py").write_text("def build(inputs):\n    return 'file'\n")
    for answer in ("one", "two"):  # another text is another module
        found = find_factory("texted:build", f"def build(inputs):\n    return {answer!r}\n")
        assert found is not None
        assert found(None) == answer  # type: ignore[arg-type]  # it returns a text


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        ("1/0", "ZeroDivisionError"),
        ("x = 1", "has no attribute 'build'"),
        ("build = 3", "not a function"),
    ],
)
def test_a_module_with_an_error_is_a_wrong_configuration(source: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        find_factory("texted:build", source)


def test_code_in_a_checkpoint_or_an_export_is_not_run() -> None:
    stored = make_config({"model": "texted:build", "model_source": "raise SystemExit"})
    assert scoring_config(stored.model_dump(mode="json")).model_source is None

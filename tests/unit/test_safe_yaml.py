"""YAML readers accept or refuse every text with its line, without a crash or a long delay."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cloudrec.agent.supervisor.command import TorchrunCommand
from cloudrec.cli.main import run
from cloudrec.errors import PreflightError, SpecError
from cloudrec.kubernetes.client.credentials import Kubeconfig
from cloudrec.providers.kubernetes.api import contexts
from cloudrec.safe_yaml import limited_text, safe_yaml
from cloudrec.spec.load import load
from tests.unit.support_yaml import BOMB, READ, REFUSED
from trainer.base.arguments import parse_arguments
from trainer.base.errors import ConfigError
from trainer.base.safe_yaml import safe_yaml as trainer_safe_yaml

PIECES = [
    "&a ",
    "*a",
    "[",
    "]",
    "{",
    "}",
    ":",
    ": ",
    "- ",
    "\n",
    "  ",
    "!!int ",
    "!!bool ",
    "!!set ",
    "x",
    "<<",
    "? ",
    "|",
    ">",
    "'",
    '"',
    "%",
    "0x",
    "1",
    "2020-01-01",
    "\t",
    ",",
    "#",
]
SMALL = 50_000  # characters; a kubeconfig may be larger than a spec


def begins(text: str) -> str:
    return repr(text[:20])


@pytest.mark.parametrize("text", REFUSED, ids=begins)
def test_unreadable_yaml_is_one_error_with_the_reason(text: str) -> None:
    with pytest.raises(SpecError) as refused:
        safe_yaml(text, where="here", error=SpecError, remedy="fix it")
    assert refused.value.message.startswith("here")
    assert REFUSED[text] in refused.value.message
    assert len(refused.value.message) < 200
    assert refused.value.remedy == "fix it"


@pytest.mark.parametrize("text", READ, ids=begins)
def test_usual_yaml_is_read(text: str) -> None:
    assert safe_yaml(text, where="here", error=SpecError).value == READ[text]


@pytest.mark.parametrize("text", [*READ, *REFUSED], ids=begins)
def test_the_trainer_accepts_and_refuses_the_same_yaml(text: str) -> None:
    if text in READ:
        assert trainer_safe_yaml(text) == READ[text]
        return
    with pytest.raises(ConfigError) as refused:
        trainer_safe_yaml(text)
    assert REFUSED[text] in str(refused.value)


def test_without_libyaml_the_same_yaml_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader")
    for name in ("cloudrec.safe_yaml", "trainer.base.safe_yaml"):
        monkeypatch.delitem(sys.modules, name)
    from cloudrec.safe_yaml import safe_yaml as slow  # noqa: PLC0415 - a second copy, without libyaml

    assert slow is not safe_yaml
    for text in REFUSED:
        with pytest.raises(SpecError):
            slow(text, where="here", error=SpecError)
    for text, value in READ.items():
        assert slow(text, where="here", error=SpecError).value == value


@given(pieces=st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=40))
def test_any_text_has_the_same_result_in_both_readers(pieces: list[str]) -> None:
    text = "".join(pieces)
    try:
        value = safe_yaml(text, where="here", error=SpecError).value
    except SpecError:
        with pytest.raises(ConfigError):
            trainer_safe_yaml(text)
    else:
        assert repr(trainer_safe_yaml(text)) == repr(value)


@pytest.mark.parametrize("text", [text for text in REFUSED if "\0" not in text], ids=begins)
def test_the_command_line_refuses_unreadable_yaml_with_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path / "home"))
    file = tmp_path / "spec.yaml"
    file.write_text(text, encoding="utf-8")
    for command in (["up", "local", "--dry-run"], ["train", "--dry-run"]):
        assert run([*command, "-f", str(file)]) == 2
        assert f"error: {file}" in capsys.readouterr().err


@pytest.mark.parametrize("text", [text for text in [*READ, *REFUSED] if "\0" not in text], ids=begins)
def test_any_text_in_a_flag_or_a_variable_is_a_value_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    expected = 0 if text == "" else 2  # an empty value is None
    assert run(["up", "local", "--dry-run", "--set", f"train.nodes={text}"]) == expected
    monkeypatch.setenv("CLOUDREC_TRAIN_NODES", text)
    assert run(["up", "local", "--dry-run"]) == expected
    assert "a bug in cloudrec" not in capsys.readouterr().err


def test_an_invalid_date_is_a_string(tmp_path: Path) -> None:
    (tmp_path / "cloudrec.yaml").write_text("cluster: {name: 2020-13-45}")
    spec = load(None, environment={}, flags={}, folder=tmp_path).spec
    assert spec.cluster.name == "2020-13-45"


@pytest.mark.parametrize("text", [*(text for text in REFUSED if len(text) < SMALL), "- a", "x"], ids=begins)
def test_an_unreadable_kubeconfig_is_refused_with_exit_code_3(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text, encoding="utf-8")
    for read in (lambda: Kubeconfig(file, ""), lambda: contexts.read([file])):
        with pytest.raises(PreflightError) as refused:
            read()
        assert str(file) in refused.value.message


def test_a_binary_file_is_refused_by_every_yaml_reader(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    for file in (tmp_path / "folder", tmp_path / "binary", Path("/dev/zero")):
        with pytest.raises(SpecError, match=str(file)):
            load(file, environment={}, flags={}, folder=tmp_path)
        with pytest.raises(PreflightError, match=str(file)):
            Kubeconfig(file, "")
        with pytest.raises(PreflightError, match=str(file)):
            contexts.read([file])
        with pytest.raises(ConfigError, match=str(file)):
            parse_arguments(["--config", str(file)])


@pytest.mark.parametrize("name", ["trainer.yaml", "trainer.toml"])
@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "9" * 5000, "x: " + "[" * 5000, BOMB])
def test_an_unreadable_configuration_is_reported_by_the_trainer(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=name):
        parse_arguments(["--config", str(tmp_path / name)])
    with pytest.raises(ConfigError):
        parse_arguments(["--table_names", text])


def test_an_agent_ignores_an_unreadable_configuration(tmp_path: Path) -> None:
    (tmp_path / "trainer.yaml").write_text(BOMB)
    command = TorchrunCommand(torchrun=(), trainer=("--config", str(tmp_path / "trainer.yaml")))
    assert command.config() == {}


def test_files_are_read_up_to_the_size_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("abcd")
    assert limited_text(tmp_path / "file", 4) == "abcd"
    with pytest.raises(OSError, match="File too large"):
        limited_text(tmp_path / "file", 3)

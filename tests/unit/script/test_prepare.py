"""A node gets the code once, and each set of requirements once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cloudrec.errors import DataError, UsageError
from cloudrec.launchers.base.results_store import open_place
from cloudrec.launchers.base.run_folder import create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.base.script.pack import Archive, pack
from cloudrec.launchers.base.script.prepare import NodeFolders, deliver, fetch, keep_archive, prepare
from cloudrec.launchers.base.script_program import UserScript
from tests.unit.script.support_wheel import write_wheel


def _script(archive: Archive, requirements: str = "") -> UserScript:
    return UserScript(
        file="train.py", digest=archive.digest, arguments=("--a", "b c"), requirements=requirements
    )


def _prepare(tmp_path: Path, work: Path, requirements: str = "") -> tuple[Path, list[str]]:
    said: list[str] = []
    run = tmp_path / "run"
    run.mkdir(exist_ok=True)
    archive = pack(work)
    prepare(
        _script(archive, requirements),
        NodeFolders(run=run, layers=tmp_path / "layers"),
        lambda: archive.data,
        said.append,
    )
    return run, said


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n", encoding="utf-8")
    return folder


def test_the_code_is_unpacked_once_and_what_a_script_wrote_beside_it_stays(
    tmp_path: Path, work: Path
) -> None:
    run, _ = _prepare(tmp_path, work)
    (run / "code" / "written").touch()
    (run / "stop").touch()
    _prepare(tmp_path, work)
    assert (run / "code" / "written").exists()
    assert not (run / "stop").exists()
    (work / "train.py").write_text("print(2)\n", encoding="utf-8")
    _prepare(tmp_path, work)
    assert (run / "code" / "train.py").read_text() == "print(2)\n"
    assert not (run / "code" / "written").exists()
    assert json.loads((run / "code.json").read_text())["arguments"] == ["--a", "b c"]


def test_metrics_that_a_script_writes_in_its_folder_are_the_runs(tmp_path: Path, work: Path) -> None:
    run, _ = _prepare(tmp_path, work)
    (run / "code" / "metrics.jsonl").write_text('{"step": 1}\n', encoding="utf-8")
    assert (run / "metrics.jsonl").read_text() == '{"step": 1}\n'


def test_requirements_are_installed_once_beside_the_packages_of_this_python(
    tmp_path: Path, work: Path
) -> None:
    line = write_wheel(work / "wheels")
    (work / "requirements.txt").write_text(f"{line}\nnumpy\n", encoding="utf-8")
    run, said = _prepare(tmp_path, work, "requirements.txt")
    assert [text.split()[0] for text in said] == ["installing", "installed"]
    python = json.loads((run / "code.json").read_text())["python"]
    code = "import canary_package, numpy, cloudrec; print(canary_package.VERSION, numpy.__file__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    version, numpy = done.stdout.split()
    assert version == "1.0"
    assert str(tmp_path) not in numpy  # it was there already
    assert _prepare(tmp_path, work, "requirements.txt")[1] == []
    # The same text, but another file that it names.
    (work / "wheels" / "more").touch()
    assert len(_prepare(tmp_path, work, "requirements.txt")[1]) == 2
    assert len([path for path in (tmp_path / "layers").iterdir() if path.is_dir()]) == 2


def test_requirements_that_pip_refuses_are_an_error_with_its_words(tmp_path: Path, work: Path) -> None:
    (work / "requirements.txt").write_text("no-such-package==99\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"cannot install requirements\.txt: ERROR.*no-such-package"):
        _prepare(tmp_path, work, "requirements.txt")


def test_the_storage_gets_the_code_once_and_damage_is_found(tmp_path: Path, work: Path) -> None:
    archive, storage = pack(work), tmp_path / "storage"
    spec = RunSpec(name="one", storage=str(storage), script=_script(archive))
    run = create_run(tmp_path / "runs", spec)
    with pytest.raises(DataError, match="has no code"):
        deliver(run, spec)
    keep_archive(run, archive.data)
    deliver(run, spec)
    (file,) = storage.glob("code/*")
    before = file.stat()
    deliver(run, spec)
    assert file.stat() == before
    assert fetch(str(storage), archive.digest) == archive.data
    file.write_bytes(b"other")
    with pytest.raises(DataError, match="SHA-256 differs"):
        fetch(str(storage), archive.digest)
    file.unlink()
    with pytest.raises(DataError, match="does not exist"):
        fetch(str(storage), archive.digest)


def test_a_file_is_sent_to_a_storage_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(content := bytes(3 * 2**20))
    open_place(str(tmp_path / "to")).send("a/b", tmp_path / "source")
    assert (tmp_path / "to" / "a" / "b").read_bytes() == content


def test_a_run_with_a_script_is_read_from_its_file(work: Path) -> None:
    spec = RunSpec(name="one", script=_script(pack(work), "r.txt"), secrets={"A": "s/k"})
    again = RunSpec.from_json(spec.to_json())
    assert (again.script, again.secrets) == (spec.script, spec.secrets)
    assert spec.script is not None
    assert UserScript.of(json.loads(json.dumps(spec.script.document()))) == spec.script


@pytest.mark.parametrize("document", [[], {"file": "a.py", "digest": "d", "newer": 1}, {"file": "a.py"}])
def test_a_script_of_another_version_is_refused(document: object) -> None:
    with pytest.raises(UsageError, match="the run's script"):
        UserScript.of(document)

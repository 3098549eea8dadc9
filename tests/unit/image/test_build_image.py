"""Image builds: the builder's command, its context, and its errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cloudrec.errors import CloudrecError, PreflightError, StorageError, UsageError
from cloudrec.image import builders, records, work
from cloudrec.image.context import build_context
from cloudrec.image.records import PushedImage, newest, note_pushed
from cloudrec.image.stages import needed
from cloudrec.image.work import BuildWish
from cloudrec.providers.base.facts import image_targets
from tests.unit.image.support import ROOT, Machine, built, make_machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = make_machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.path}:/usr/bin:/bin")
    monkeypatch.setenv("DOCKER_STANDIN", str(made.notes))
    return made


def cli(machine: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CLOUDREC_HOME": str(machine.home.root), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "cloudrec", "image", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd="/")


def build(machine: Machine, wish: BuildWish, lines: list[str] | None = None) -> records.BuiltImage | None:
    report = (lines if lines is not None else []).append
    return work.build(
        machine.home, wish, builders.find("docker"), decide=lambda _command: True, report=report
    )


def test_a_build_uses_the_target_of_the_fabric_and_records_the_image(machine: Machine) -> None:
    lines: list[str] = []
    made = build(machine, BuildWish(fabric="efa", device="cuda", base="other:1", flags=("--pull",)), lines)
    call = machine.call("build")
    assert call[call.index("--target") + 1] == "efa"
    assert {"DEVICE=cuda", "BASE=other:1", "--pull"} <= set(call)
    assert call[-1] == str(ROOT)
    assert records.built(machine.home) == [made]
    assert any("load build definition" in line for line in lines)


def test_the_pip_configuration_is_a_build_secret(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://user:word@index.example/simple\n")
    build(machine, BuildWish(fabric="plain", device="cpu", pip_conf=tmp_path / "pip.conf"))
    call = machine.call("build")
    assert call[call.index("--secret") + 1] == f"id=pip,src={tmp_path / 'pip.conf'}"
    assert "word@index" not in str(call)


FAILURES = [
    ("ERROR: failed to solve: exit code: 1", "exit code 1; its last lines", CloudrecError),
    ("write /var/lib/x: no space left on device", "the disk is full", StorageError),
    ("curl: (6) temporary failure in name resolution", "does not answer", StorageError),
]


@pytest.mark.parametrize(("words", "told", "kind"), FAILURES)
def test_a_failed_build_is_reported_with_its_last_lines(
    machine: Machine, words: str, told: str, kind: type[CloudrecError]
) -> None:
    (machine.notes / "fails").write_text(words)
    with pytest.raises(kind, match=told) as caught:
        build(machine, BuildWish(fabric="plain", device="cpu"))
    assert words in caught.value.message
    assert caught.value.remedy
    assert records.built(machine.home) == []


def test_a_missing_builder_is_reported_with_the_reason_for_each(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{machine.path}:/bin/nowhere")
    (machine.path / "docker").unlink()
    with pytest.raises(PreflightError, match="buildah: it is not on PATH") as caught:
        builders.find()
    assert "install docker, podman or buildah" in (caught.value.remedy or "")
    with pytest.raises(UsageError, match="kaniko"):
        builders.find("kaniko")


def test_docker_without_a_daemon_is_skipped(machine: Machine) -> None:
    (machine.notes / "no-daemon").touch()
    with pytest.raises(PreflightError, match="Cannot connect to the Docker daemon"):
        builders.find("docker")


def test_a_dry_run_prints_the_command_and_runs_nothing(machine: Machine) -> None:
    done = cli(machine, "build", "--cpu", "--builder", "docker", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "--target plain" in done.stderr
    assert "would be built" in done.stdout
    assert [call for call in machine.calls() if "build" in call] == []
    assert not (machine.home.root / "images.json").exists()


def test_an_image_that_was_not_built_cannot_be_pushed(machine: Machine) -> None:
    done = cli(machine, "push")
    assert done.returncode == 2
    assert "no image was built here yet" in done.stderr
    records.note_built(machine.home, built())
    done = cli(machine, "push", "other:1", "--repository", "r.example/x")
    assert "'other:1'" in done.stderr
    assert "cloudrec:1.0-plain" in done.stderr
    done = cli(machine, "push", "--repository", "r.example/x", "--dry-run")
    assert "r.example/x:1.0-plain-20261121101112" in done.stdout


def test_the_newest_image_of_a_repository_is_the_one_pushed_last(machine: Machine) -> None:
    def note(repository: str, number: int) -> PushedImage:
        image = PushedImage(
            repository=repository,
            digest=f"sha256:{number:064x}",
            tag="t",
            fabric="efa",
            device="cuda",
            version="1",
            cluster="dev",
            pushed="2026-11-21T10:11:12+00:00",
        )
        note_pushed(machine.home, image)
        return image

    first, other, second = note("r/a", 1), note("r/b", 2), note("r/a", 3)
    assert newest(machine.home, "r/a") == second
    assert newest(machine.home, "r/b") == other
    note("r/a", 1)  # pushed again
    assert newest(machine.home, "r/a") == first
    assert len(records.pushed(machine.home)) == 3


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", '{"schema_version": 1, "pushed": 3}', '{"schema_version": 1, "pushed": [{}]}'),
        '{"schema_version": 1, "built": [], "pushed": [{"repository": 5}]}',
        '{"schema_version": 1, "built": [{"name": "x", "of_a_newer_version": 1}], "pushed": []}',
    ],
)
def test_a_damaged_list_of_images_is_reported(machine: Machine, text: str) -> None:
    machine.home.root.mkdir()
    (machine.home.root / "images.json").write_text(text)
    with pytest.raises(StorageError, match="damaged"):
        newest(machine.home, "r/a")


def test_only_the_stages_of_a_target_are_built() -> None:
    text = (ROOT / "Dockerfile").read_text()
    named = {
        target: re.findall(r"^FROM \S+ AS (\S+)$", needed(text, target), re.MULTILINE)
        for target in image_targets()
    }
    for target, stages in named.items():
        assert stages == ["base", "build", "wheel", "torch", f"venv-{target}", target]
    assert needed(text, "efa").startswith(text[: text.index("FROM")])


def test_a_folder_without_the_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="it has no Dockerfile"), build_context(tmp_path):
        pass


def test_the_image_pins_the_versions_of_the_tests() -> None:
    from scripts.setup_env import FBGEMM, TORCH, TORCHREC  # noqa: PLC0415 - no package

    dockerfile = (ROOT / "Dockerfile").read_text()
    assert {f"ARG TORCH={TORCH}", f"ARG FBGEMM={FBGEMM}", f"ARG TORCHREC={TORCHREC}"} <= set(
        dockerfile.splitlines()
    )

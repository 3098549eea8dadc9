"""Ctrl-C in `data` and `image`: what exists, and the commands that continue or remove it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudrec.cli.left_behind import FolderInHand, UploadInHand

PATIENCE_S = 60.0


def interrupted(arguments: list[str], home: Path, when: Callable[[], bool], **more: str) -> str:
    """Run a command, press Ctrl-C once `when` is true, and return its error output."""
    environment = {**os.environ, "CLOUDREC_HOME": str(home / "home"), **more}
    with subprocess.Popen(
        [sys.executable, "-m", "cloudrec", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env=environment,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not when() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    return errors


def command(errors: str, what: str) -> list[str]:
    found = re.search(rf"{what}: `([^`]+)`", errors)
    assert found is not None, errors
    return shlex.split(found[1])


def test_synth_removes_its_files_and_names_the_command(tmp_path: Path) -> None:
    out = tmp_path / "raw data"
    arguments = ["data", "synth", str(out), "--rows", "2000000"]
    errors = interrupted(arguments, tmp_path, lambda: any(out.rglob("*.gz")))
    assert f"nothing is left in {out}" in errors
    assert command(errors, "continue") == ["cloudrec", *arguments]
    assert not any(out.rglob("*.gz"))


def test_files_that_could_not_be_removed_are_counted_with_both_commands(tmp_path: Path) -> None:
    out = tmp_path / "raw data"
    out.mkdir()
    (out / "part-0.tsv.gz").write_bytes(b"x" * 2048)
    message, remedy = FolderInHand(out=out).messages(["data", "synth", str(out)])
    assert "has 1 files (2.0 KiB) and is incomplete" in message
    assert command(remedy, "continue") == ["cloudrec", "data", "synth", str(out), "--overwrite"]
    assert command(remedy, "remove") == ["rm", "-r", str(out)]


def test_prepare_leaves_nothing_of_a_new_dataset_and_keeps_an_old_one(tmp_path: Path) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    made = [sys.executable, "-m", "cloudrec", "data", "synth", str(raw), "--rows", "400000"]
    subprocess.run(made, check=True, capture_output=True, cwd=tmp_path)
    arguments = ["data", "prepare", str(raw), str(out)]
    errors = interrupted(arguments, tmp_path, (out / ".tmp").exists)
    assert f"nothing is left in {out}" in errors
    assert command(errors, "continue") == ["cloudrec", *arguments]
    subprocess.run(
        [sys.executable, "-m", "cloudrec", *arguments], check=True, capture_output=True, cwd=tmp_path
    )
    errors = interrupted([*arguments, "--overwrite"], tmp_path, (out / ".tmp").exists)
    assert f"the dataset that {out} has is as it was" in errors
    check = [sys.executable, "-m", "cloudrec", "data", "check", str(out), "--deep"]
    subprocess.run(check, check=True, capture_output=True, cwd=tmp_path)


def test_a_build_that_is_interrupted_names_the_tool_that_keeps_its_steps(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    began = tmp_path / "began"
    docker = tools / "docker"
    docker.write_text(f'#!/bin/sh\ncase "$1" in build|buildx) touch {began}; sleep 60;; esac\nexit 0\n')
    docker.chmod(0o755)
    arguments = ["image", "build", "--builder", "docker", "--tag", "mine:1"]
    errors = interrupted(arguments, tmp_path, began.exists, PATH=f"{tools}:{os.environ['PATH']}")
    assert "mine:1 is not built; docker keeps the steps that were done" in errors
    assert command(errors, "continue") == ["cloudrec", *arguments]
    assert command(errors, "remove") == ["docker", "builder", "prune"]


@pytest.mark.parametrize("sent", [0, 5 << 20])
def test_a_push_says_how_much_was_sent(sent: int) -> None:
    upload = UploadInHand()
    assert upload.messages(["data", "push", "x"])[0] == "interrupted; nothing was sent"
    upload.uri, upload.files, upload.total, upload.sent = "s3://b/data/x", 9, 10 << 20, sent
    message, remedy = upload.messages(["data", "push", "x"])
    assert f"{'5.0 MiB' if sent else '0 bytes'} of 10.0 MiB (9 files)" in message
    assert "no dataset without dataset.json" in message
    assert "continue: `cloudrec data push x` sends only what is not there" in remedy

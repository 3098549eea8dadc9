"""Each command that changes something ends with the next step, and commands without a place say where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cloudrec.cli.main import root

PROGRAM = [sys.executable, "-m", "cloudrec"]
# Commands that only read, or that last until they are ended.
READS = {
    "addons list",
    "image sbom",
    "notify status",
    "notify test",
    "ui",
    "catalog",
    "completion",
    "cost",
    "doctor",
    "exec",
    "logs",
    "plan",
    "port-forward",
    "queue",
    "sandbox attach",
    "sandbox run",
    "sandbox stop",
    "serve",
    "ssh",
    "status",
}
# Those of a cluster on a cloud, which the slow test below runs.
ON_CLOUDS = {
    "access": ("auto", "--yes"),
    "addons install": ("--yes",),
    "addons remove": ("volumes", "--yes"),
    "data push": ("prepared",),
    "leaks": ("aws", "--delete", "--yes"),
}
NEED_A_BUILDER = {"image build", "image push"}  # of images, which this machine need not have
ON_A_CLOUD = """
import json, subprocess, sys
for words in json.loads(sys.argv[1]):
    done = subprocess.run([sys.executable, "-m", "cloudrec", *words], capture_output=True, text=True)
    print(json.dumps([words, done.returncode, (done.stderr.splitlines() or [""])[-1]]), flush=True)
"""


def cloudrec(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=home.parent,
        env={**os.environ, "CLOUDREC_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def last(done: subprocess.CompletedProcess[str], code: int = 0) -> str:
    assert done.returncode == code, done.stderr
    return done.stderr.splitlines()[-1]


def test_each_command_that_changes_something_ends_with_the_next_step(tmp_path: Path) -> None:
    home, met = tmp_path / "home", set()

    def step(*arguments: str, code: int = 0) -> str:
        met.add(" ".join(arguments[:2]) if arguments[0] in {"data", "addons", "image"} else arguments[0])
        line = last(cloudrec(home, *arguments), code)
        assert line.startswith("next: "), (arguments, line)
        return line

    assert "cloudrec up" in step("init")
    (tmp_path / "cloudrec.yaml").unlink()
    assert "--dry-run" in step("up", "local", "--dry-run")
    assert "cloudrec train --cluster local" in step("up", "local", "--yes")
    assert "cloudrec data prepare raw" in step("data", "synth", "raw", "--rows", "2000", "--test-rows", "500")
    assert "cloudrec train --dataset prepared" in step("data", "prepare", "raw", "prepared")
    assert "cloudrec train --dataset prepared" in step("data", "check", "prepared")
    (tmp_path / "script.py").write_text("print('done')\n")
    assert "--dry-run" in step("train", "script.py", "--dry-run", "--name", "a")
    assert "cloudrec report a" in step("train", "script.py", "--yes", "--name", "a")
    (tmp_path / "long.py").write_text("import time\ntime.sleep(600)\n")
    assert "cloudrec stop b" in step("train", "long.py", "--yes", "--name", "b", "--detach")
    assert "cloudrec train --resume b" in step("stop", "b", "--grace", "1")
    assert "a.html" in step("report", "a")
    assert "cloudrec report a" in step("fetch", "a")
    assert "cloudrec cost" in step("down", "--cluster", "local", "--yes")
    missing = commands() - met - READS - ON_CLOUDS.keys() - NEED_A_BUILDER
    assert not missing, f"a new command is neither here nor named as one that only reads: {missing}"


@pytest.mark.slow
def test_each_command_that_changes_a_cluster_on_a_cloud_ends_with_the_next_step(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = [("data", "synth", "raw", "--rows", "2000"), ("data", "prepare", "raw", "prepared")]
    assert all(cloudrec(home, *words).returncode == 0 for words in made)
    steps = [["up", "aws", "--region", "us-east-1", "--yes"]]
    steps += [[*name.split(), *rest] for name, rest in ON_CLOUDS.items()]
    steps += [["down", "aws", "--yes"]]
    done = cloudrec(home, "sandbox", "run", "aws", "--", sys.executable, "-c", ON_A_CLOUD, json.dumps(steps))
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [words for words, _, _ in found] == steps, done.stderr
    for words, code, line in found:
        assert (code, line.startswith("next: ")) == (0, True), (words, code, line)


def commands() -> set[str]:
    """The names of all commands, with those of groups."""
    context = click.Context(root)
    found = set[str]()
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= {f"{name} {each}" for each in command.list_commands(click.Context(command))}
        else:
            found.add(name)
    return found


def test_a_document_has_no_next_step_beside_it(tmp_path: Path) -> None:
    done = cloudrec(tmp_path / "home", "up", "local", "--yes", "-o", "json")
    assert "next:" not in done.stderr


def test_cloudrec_alone_prints_the_help_by_group_with_examples_first(tmp_path: Path) -> None:
    done = cloudrec(tmp_path / "home")
    assert (done.returncode, done.stderr) == (0, "")
    places = [
        done.stdout.index(f"\n{each}:") for each in ("Clusters", "Runs", "Data, images and models", "Other")
    ]
    assert places == sorted(places)
    assert done.stdout.index("Examples:") < places[0] < done.stdout.index("\nOptions:")
    assert done.stdout == cloudrec(tmp_path / "home", "--help").stdout


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("ps", "status"),
        ("gpus", "catalog"),
        ("rm", "down"),
        ("attach", "exec"),
        ("trian", "train"),
        ("cancel", "stop"),
    ],
)
def test_a_name_of_another_tool_suggests_the_command_that_is_meant(
    tmp_path: Path, wrong: str, meant: str
) -> None:
    done = cloudrec(tmp_path / "home", wrong)
    assert done.returncode == 2
    assert f"there is no command {wrong!r}; did you mean {meant!r}?" in done.stderr


def test_a_run_that_has_ended_cannot_be_entered(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert cloudrec(home, "up", "local", "--yes").returncode == 0
    (tmp_path / "script.py").write_text("print('done')\n")
    assert cloudrec(home, "train", "script.py", "--yes", "--name", "a").returncode == 0
    done = cloudrec(home, "exec", "a", "--", "true")
    assert done.returncode == 2
    assert "run a is SUCCEEDED, so nothing of it runs" in done.stderr
    (tmp_path / "long.py").write_text("import time\ntime.sleep(600)\n")
    assert cloudrec(home, "train", "long.py", "--yes", "--name", "b", "--detach").returncode == 0
    done = cloudrec(home, "exec", "b", "--", "sh", "-c", "echo rank $RANK; exit 4")
    assert (done.returncode, done.stdout) == (4, "rank 0\n")
    done = cloudrec(home, "port-forward", "b", "6006")
    assert done.returncode == 2
    assert "connect to 127.0.0.1:6006" in done.stderr
    for ports in ("x", "0", "1:2:3", "70000", "6006:0"):
        done = cloudrec(home, "port-forward", "b", ports)
        assert done.returncode == 2
        assert "is no port" in done.stderr
    done = cloudrec(home, "ssh", "b")
    assert done.returncode == 2
    assert "stdin is no terminal" in done.stderr
    assert cloudrec(home, "stop", "b", "--grace", "1").returncode == 0

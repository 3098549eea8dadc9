"""A user's own torchrun script on this machine, through the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# In the style of torchrec's examples: it knows torchrun's variables, and nothing of cloudrec.
PLAIN = """
import argparse, os
import torch
import torch.distributed as dist
import helper

def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--config", default="")
    args = parser.parse_args(argv)
    rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group(backend="gloo")
    total = torch.ones(1) * args.batch_size
    dist.all_reduce(total)
    print(f"rank {rank} of {dist.get_world_size()}: {total.item():g} {args.config} {helper.NAME}", flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
# It continues at the step in its folder of checkpoints, and ends at a stop with 75.
STEPS = """
import os, pathlib, signal, sys, time
import cloudrec

folder = pathlib.Path(os.environ["CLOUDREC_CHECKPOINTS"])
rank, last = int(os.environ["RANK"]), int(sys.argv[1])
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
mark = folder / f"rank-{rank}"
first = int(mark.read_text()) if mark.exists() else 0
print(f"pid {os.getpid()} begins at {first}", flush=True)
for step in range(first + 1, last + 1):
    time.sleep(0.05)
    draft = folder / f".rank-{rank}"
    draft.write_text(str(step))
    draft.rename(mark)
    cloudrec.log(step=step, loss=1 / step)
    # torchrun also sends SIGTERM to the ranks that outlive a crashed one; the file is there for a stop alone.
    if stopped and pathlib.Path(os.environ["CLOUDREC_STOP_FILE"]).exists():
        sys.exit(75)
"""
CANARY = "c4n4ry-v4lue"


class Desk:
    """A home and a working folder."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.home = folder / "home"
        self.variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CLOUDREC_")},
            "CLOUDREC_HOME": str(self.home),
        }

    def call(self, *words: str, code: int | None = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "cloudrec", *words],
            cwd=self.work,
            env={**self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert code is None or done.returncode == code, done.stderr + done.stdout
        return done

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.work / f"{name}.py").write_text(text, encoding="utf-8")

    def view(self, run: str) -> dict[str, Any]:
        return json.loads(self.call("status", run, "-o", "json").stdout)["runs"][0]

    def log(self, run: str, rank: int = 0) -> str:
        return (self.home / "runs" / run / "logs" / f"rank-{rank}.log").read_text(encoding="utf-8")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.call("up", "local", "--yes")
    return desk


def _await(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    give_up = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.1)
    return found


def test_a_plain_torchrun_script_runs_unchanged_with_its_own_flags_and_modules(desk: Desk) -> None:
    # `torch.py` beside it would break a plain torchrun; only the script itself may import it.
    desk.write(plain=PLAIN.replace("import helper", "import sys; sys.path.insert(0, 'sub'); import helper"))
    (desk.work / "sub").mkdir()
    (desk.work / "sub" / "helper.py").write_text("NAME = 'mine'\n", encoding="utf-8")
    for foreign in ("trainer", "yaml", "cloudrec_contract", "click"):
        (desk.work / f"{foreign}.py").write_text("raise SystemExit('the wrong module')\n", encoding="utf-8")
    done = desk.call(
        *("train", "plain.py", "--nproc-per-node", "2", "--name", "one", "--yes"),
        *("--", "--batch_size", "3", "--config", "own.yaml"),
    )
    assert "rank 1 of 2: 6 own.yaml mine" in desk.log("one", 1)
    assert "SUCCEEDED" in done.stdout
    assert json.loads((desk.home / "runs" / "one" / "summary.json").read_text())["status"] == "finished"


def test_a_killed_rank_is_restarted_and_the_script_continues_with_its_checkpoints(desk: Desk) -> None:
    desk.write(steps=STEPS)
    desk.call("train", "steps.py", "--nproc-per-node", "2", "--name", "two", "--yes", "--detach", "--", "300")
    step = _await(lambda: (desk.view("two")["step"] or 0) > 5 and desk.view("two")["step"])
    pid = int(desk.log("two", 1).split("pid ")[1].split()[0])
    os.kill(pid, signal.SIGKILL)
    view = _await(lambda: (view := desk.view("two"))["state"] == "SUCCEEDED" and view)
    assert (view["restarts"], view["step"], view["loss"]) == (1, 300, 1 / 300)
    begins = [int(line.split()[-1]) for line in desk.log("two").splitlines() if "begins at" in line]
    assert begins[0] == 0
    assert begins[1] >= step
    assert "killed by SIGKILL" in desk.call("report", "two").stdout + (
        desk.home / "runs" / "two" / "events.jsonl"
    ).read_text(encoding="utf-8")


def test_a_stopped_script_is_resumed_with_the_code_that_it_was_launched_with(desk: Desk) -> None:
    desk.write(steps=STEPS)
    desk.call("train", "steps.py", "--name", "three", "--yes", "--detach", "--", "200")
    _await(lambda: (desk.view("three")["step"] or 0) > 3)
    stopped = desk.call("stop", "three", "--yes", code=None)
    view = desk.view("three")
    assert view["state"] == "INTERRUPTED", stopped.stderr
    assert "folder of checkpoints" in view["cause"]
    (desk.work / "steps.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    desk.call("train", "--resume", "three", "--yes")
    assert desk.view("three")["state"] == "SUCCEEDED"
    begins = [int(line.split()[-1]) for line in desk.log("three").splitlines() if "begins at" in line]
    assert begins[1] > 3


def test_any_other_exit_code_is_a_failure_after_the_restarts(desk: Desk) -> None:
    desk.write(bad="import sys\nprint('ValueError: no such column')\nsys.exit(7)\n")
    done = desk.call("train", "bad.py", "--name", "four", "--max-restarts", "1", "--yes", code=1)
    assert "exit code 7: ValueError: no such column (after 1 restart; the limit is 1)" in done.stderr


def test_no_file_of_a_run_holds_a_secret(desk: Desk) -> None:
    desk.write(
        own="import os\nassert os.environ['WANDB_API_KEY'] == os.environ['CHECK'][::-1]\n"
        "assert os.environ['PLAIN'] == 'a b'\nimport pathlib\n"
        "for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):\n"  # also the agent's
        "    try:\n        words = path.read_bytes()\n    except OSError:\n        continue\n"
        "    assert os.environ['WANDB_API_KEY'].encode() not in words, words\n"
    )
    (desk.work / ".env").write_text(f"LEAK={CANARY}\n", encoding="utf-8")
    (desk.work / "variables").write_text("PLAIN='a b'\n", encoding="utf-8")
    words = ("train", "own.py", "--secret", "WANDB_API_KEY=MY_KEY", "--env-file", "variables", "--yes")
    check = ("--env", f"CHECK={CANARY[::-1]}")
    refused = desk.call(*words, "--name", "no", code=3)
    assert "the variable MY_KEY is not set here" in refused.stderr
    done = desk.call(*words, *check, "--name", "five", MY_KEY=CANARY)
    dry = desk.call(*words, *check, "--name", "six", "--dry-run", "-o", "json", MY_KEY=CANARY)
    assert CANARY not in done.stdout + done.stderr + dry.stdout + dry.stderr
    files = [path for path in desk.home.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
    with_name = {path.name for path in files if b"WANDB_API_KEY" in path.read_bytes()}
    assert {"spec.json", "own.py"} <= with_name  # the reference is there, and the script itself
    value = desk.call("train", "own.py", "--env", f"WANDB_API_KEY={CANARY}", "--yes", code=2)
    assert CANARY not in value.stderr
    assert "--secret WANDB_API_KEY" in value.stderr
    argument = desk.call("train", "own.py", "--yes", "--", "--api-key", CANARY, code=2)
    assert "--api-key looks like a secret" in argument.stderr
    setting = desk.call("train", "--set", f"trainer.dataset_path=s3://me:{CANARY}@b/c", "--yes", code=2)
    assert "trainer.dataset_path looks like a secret" in setting.stderr
    assert CANARY not in argument.stderr + setting.stderr
    files = [path for path in desk.home.rglob("*") if path.is_file()]
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("absent.py",), 2, "there is no script absent.py"),
        (("work.txt",), 2, "is no Python file"),
        (("a.py", "--workdir", "sub"), 2, "is not in the folder"),
        (("a.py", "--workdir", "nowhere"), 2, "nowhere"),
        (("a.py", "--requirements", "absent.txt"), 2, "there is no file absent.txt"),
        (("--workdir", "sub"), 2, "train.workdir is for a script"),
        (("a.py", "--env", "c4n4ry"), 2, "--env c4n4ry is not NAME=VALUE"),
        (("a.py", "--secret", "=x"), 2, "--secret is not NAME or NAME=KEY"),
        (("a.py", "--secret", "A=s/k"), 2, "names a key of a Kubernetes Secret"),
    ],
)
def test_what_cannot_run_is_refused_before_a_run_exists(
    desk: Desk, words: tuple[str, ...], code: int, message: str
) -> None:
    desk.write(a="")
    (desk.work / "work.txt").touch()
    (desk.work / "sub").mkdir()
    done = desk.call("train", *words, "--yes", code=code)
    assert message in done.stderr
    assert "remedy:" in done.stderr
    assert not (desk.home / "runs").exists()

"""A script that reports to a real MLflow server: its own variables, the password by reference."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudrec.process.ports import free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
VERSION = "3.17.2"
HOME = Path(sys.prefix) / f"mlflow-{VERSION}"
USER, PASSWORD = "admin", "c4n4ry-of-the-test"  # of the server's first administrator
PATIENCE_S = 120.0
SCRIPT = """
import os
import mlflow
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    with mlflow.start_run(run_name=os.environ["CLOUDREC_RUN"]):
        mlflow.log_params({"ranks": dist.get_world_size()})
        for step in range(1, 4):
            mlflow.log_metric("loss", 1 / step, step=step)
dist.destroy_process_group()
"""


def _programs() -> Path:
    """The folder of the server's programs, in a separate environment; skip where it cannot be made."""
    with HOME.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (HOME / "complete").exists():
            venv.create(HOME, with_pip=True, clear=True)
            command = [
                str(HOME / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "--quiet",
                f"mlflow[auth]=={VERSION}",
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                pytest.skip(f"mlflow {VERSION} cannot be installed here: {done.stderr.strip()[-200:]}")
            (HOME / "complete").touch()
    return HOME / "bin"


def _ask(
    address: str, path: str, body: dict[str, object] | None = None, *, user: str = USER
) -> dict[str, object]:
    request = urllib.request.Request(  # noqa: S310 - loopback
        f"{address}/api/2.0/mlflow/{path}", data=None if body is None else json.dumps(body).encode()
    )
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{PASSWORD}".encode()).decode())
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
        found: dict[str, object] = json.load(answer)
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    programs, port = _programs(), free_port("127.0.0.1")
    address = f"http://127.0.0.1:{port}"
    command = [
        *(str(programs / "mlflow"), "server", "--app-name", "basic-auth", "--workers", "1"),
        *("--host", "127.0.0.1", "--port", str(port), "--backend-store-uri", f"sqlite:///{tmp_path}/runs.db"),
    ]
    variables = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "of-the-test",
        "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
    }
    with (
        (tmp_path / "server.log").open("wb") as log,
        subprocess.Popen(
            command, cwd=tmp_path, env=variables, stdout=log, stderr=log, start_new_session=True
        ) as running,
    ):
        try:
            give_up = time.monotonic() + PATIENCE_S
            while True:
                try:
                    _ask(address, "experiments/get?experiment_id=0")
                    break
                except (OSError, urllib.error.URLError):
                    assert running.poll() is None, (tmp_path / "server.log").read_text()[-3000:]
                    assert time.monotonic() < give_up, (tmp_path / "server.log").read_text()[-3000:]
                    time.sleep(0.5)
            yield address
        finally:
            os.killpg(running.pid, 15)


def test_a_script_reports_to_mlflow_by_its_own_variables(server: str, tmp_path: Path) -> None:
    work = tmp_path / "job"
    work.mkdir()
    (work / "train.py").write_text(SCRIPT)
    (work / "requirements.txt").write_text(f"mlflow-skinny=={VERSION}\n")
    home = tmp_path / "home"
    variables = {**os.environ, "CLOUDREC_HOME": str(home), "MLFLOW_TRACKING_PASSWORD": PASSWORD}

    def call(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "cloudrec", *words],
            cwd=work,
            env=variables,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call("up", "local", "--yes")
    plain = ("--env", f"MLFLOW_TRACKING_URI={server}", "--env", f"MLFLOW_TRACKING_USERNAME={USER}")
    secret = ("--secret", "MLFLOW_TRACKING_PASSWORD")
    call("train", "train.py", "--name", "mine", "--nproc-per-node", "2", *plain, *secret, "--yes")
    found = _ask(server, "runs/search", {"experiment_ids": ["0"]})["runs"]
    assert isinstance(found, list)
    (run,) = found
    assert run["info"]["run_name"] == "mine"
    assert run["info"]["status"] == "FINISHED"
    assert [each["value"] for each in run["data"]["params"]] == ["2"]
    assert [round(each["value"], 3) for each in run["data"]["metrics"]] == [0.333]
    kept = [path for path in home.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert kept == [], "the password is in no file"

"""`cloudrec sandbox run`: a command reaches only the stand-in, or does not run."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.prefix) / "bin" / "cloudrec"
# The credentials of a laptop with accounts of all clouds.
REAL = {
    "AWS_PROFILE": "work",
    "AWS_SESSION_TOKEN": "real",
    "AWS_ENDPOINT_URL_EC2": "https://ec2.example",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
    "AWS_CONFIG_FILE": "/home/me/.aws/config",
    "AZURE_CLIENT_CERTIFICATE_PATH": "/home/me/certificate.pem",
    "AZURE_FEDERATED_TOKEN_FILE": "/home/me/token",
    "ARM_CLIENT_SECRET": "real",
    "IDENTITY_ENDPOINT": "http://169.254.169.254/real",
    "CLOUDSDK_ACTIVE_CONFIG_NAME": "work",
    "CLOUDSDK_AUTH_ACCESS_TOKEN": "real",
    "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/key.json",
    "GOOGLE_CLOUD_QUOTA_PROJECT": "real",
    "KUBECONFIG": "/home/me/.kube/config",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "CLOUDREC_HOME": "/home/me/.cloudrec",
    "NO_PROXY": "example.com",
}
SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


def sandbox_run(
    cloud: str, *words: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `cloudrec sandbox run CLOUD` with further arguments."""
    return subprocess.run(
        [str(PROGRAM), "sandbox", "run", cloud, *words],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


@pytest.mark.parametrize(
    ("cloud", "endpoint"),
    [
        ("aws", "AWS_ENDPOINT_URL"),
        ("azure", "AZURE_RESOURCE_MANAGER_ENDPOINT_URL"),
        ("gcp", "GOOGLE_CLOUD_ENDPOINT_URL"),
    ],
)
def test_a_command_has_the_stand_in_and_no_real_credentials(cloud: str, endpoint: str) -> None:
    done = sandbox_run(cloud, "--speed", "7", "--", sys.executable, "-c", SHOW, environment=REAL)
    assert done.returncode == 0, done.stderr
    seen: dict[str, str] = json.loads(done.stdout)
    assert re.match(r"https?://127\.0\.0\.1:\d+$", seen[endpoint])
    assert seen["CLOUDREC_SANDBOX_SPEED"] == "7"
    assert {"CLOUDREC_CLUSTER_ADDONS", "CLOUDREC_TRAIN_IMAGE"} & seen.keys() == set()
    assert [name for name, value in REAL.items() if seen.get(name) == value] == []
    assert {"AWS_PROFILE", "ARM_CLIENT_SECRET", "CLOUDSDK_AUTH_ACCESS_TOKEN"} & seen.keys() == set()
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AZURE_CONFIG_DIR", "CLOUDSDK_CONFIG"):
        assert not Path(seen[name]).exists()
    assert not Path(seen["CLOUDREC_HOME"]).exists()  # it is deleted with the stand-in
    assert seen["NO_PROXY"] == "example.com,127.0.0.1,localhost"


def test_without_pods_no_add_ons_are_installed() -> None:
    done = sandbox_run("aws", "--no-pods", "--", sys.executable, "-c", SHOW)
    seen: dict[str, str] = json.loads(done.stdout)
    assert seen["CLOUDREC_CLUSTER_ADDONS"] == "none"
    assert "CLOUDREC_TRAIN_IMAGE" not in seen


def test_sdks_that_ignore_the_endpoint_find_no_real_credentials(tmp_path: Path) -> None:
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = AKIAREAL\naws_secret_access_key = real\n"
    )
    ask = "import boto3; print(boto3.Session().get_credentials().access_key)"
    done = sandbox_run("aws", "--", sys.executable, "-c", ask, environment={"HOME": str(tmp_path)})
    assert done.stdout.strip() == "AKIASANDBOX000000000", done.stderr
    without = f"import os; del os.environ['AWS_ACCESS_KEY_ID'], os.environ['AWS_SECRET_ACCESS_KEY']\n{ask}"
    done = sandbox_run("aws", "--", sys.executable, "-c", without, environment={"HOME": str(tmp_path)})
    assert "AKIAREAL" not in done.stdout
    assert "has no attribute 'access_key'" in done.stderr


def test_the_commands_exit_code_is_returned_and_the_stand_in_ends() -> None:
    ask = "import os, sys; print(os.environ['AWS_ENDPOINT_URL']); sys.exit(4)"
    done = sandbox_run("aws", "--", sys.executable, "-c", ask)
    assert done.returncode == 4, done.stderr
    port = int(done.stdout.strip().rpartition(":")[2])
    # The port is free again; an orphaned stand-in would hold it.
    again = sandbox_run("aws", "--port", str(port), "--", sys.executable, "-c", "pass")
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize(
    "stub",
    ["raise ModuleNotFoundError('moto', name='moto')", "import os; os._exit(0)", "print('no announcement')"],
)
def test_a_command_does_not_run_if_the_stand_in_fails_to_start(tmp_path: Path, stub: str) -> None:
    (tmp_path / "moto").mkdir()
    (tmp_path / "moto" / "__init__.py").write_text(stub)
    ran = tmp_path / "ran"
    environment = {"PYTHONPATH": str(tmp_path)}
    done = sandbox_run("aws", "--", "touch", str(ran), environment=environment)
    assert (done.returncode, ran.exists()) == (3, False), done.stderr
    assert "the stand-in 'aws' did not start" in done.stderr
    assert "the command was not run" in done.stderr


def test_a_port_in_use_is_reported_and_the_command_does_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    inner = f"{PROGRAM} sandbox run aws --port ${{AWS_ENDPOINT_URL##*:}} -- touch {ran}"
    done = sandbox_run("aws", "--", "sh", "-c", inner)
    assert (done.returncode, ran.exists()) == (3, False), done.stderr
    assert "Address already in use" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("moon", "--", "true"), "there is no stand-in 'moon'"),
        (("metadata", "--", "true"), "there is no stand-in 'metadata'"),
        (("aws", "--", "no-such-program"), "there is no command 'no-such-program'"),
        (("aws",), "Missing argument"),
        (("aws", "--speed", "0", "--", "true"), "--speed"),
    ],
)
def test_wrong_usage_is_refused(words: tuple[str, ...], message: str) -> None:
    done = sandbox_run(*words)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_new_account_has_no_gpu_quota() -> None:
    up = ("cloudrec", "up", "aws", "--yes")
    path = {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    done = sandbox_run("aws", "--quota", "none", "--", *up, environment=path)
    assert done.returncode == 3, done.stderr
    assert "quota" in done.stderr


def test_sigterm_is_forwarded_to_the_command() -> None:
    wait = "import sys, time; print('up', flush=True); time.sleep(600)"
    words = [str(PROGRAM), "sandbox", "run", "aws", "--", sys.executable, "-c", wait]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM


def block_of(words: str) -> str:
    """Return the one block of docs/rehearse.md that runs on a stand-in and contains these words."""
    text = (ROOT / "docs" / "rehearse.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (block,) = (each for each in blocks if "cloudrec sandbox run" in each and words in each)
    return str(block)


def run_block(block: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block of the page in a folder, with the credentials of a laptop with accounts of all clouds."""
    path = f"{PROGRAM.parent}:{os.environ['PATH']}"
    environment = {**os.environ, **REAL, "PATH": path, "COLUMNS": "120"}  # wide enough for all columns
    return subprocess.run(
        ["sh", "-c", block],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_the_command_of_the_page_runs_as_written(cloud: str, tmp_path: Path) -> None:
    done = run_block(block_of(f"cloudrec up {cloud} --yes"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"cluster '{cloud}' is up" in done.stdout
    assert "READY" in done.stdout
    assert f"cluster '{cloud}' is removed; no resources remain" in done.stdout


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_the_flow_of_the_page_trains_in_pods_and_leaves_nothing(cloud: str, tmp_path: Path) -> None:
    # The page has the flow of AWS; another cloud's differs by its name only. No image is named, so the pods
    # install theirs, and no dataset: the one that was pushed is used.
    block = re.sub(r"\baws\b", cloud, block_of("cloudrec data push"))
    assert "--image" not in block
    done = run_block(block, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "/data/prepared (the one pushed last, at 2" in done.stderr
    assert re.search(r"SUCCEEDED +2 +63/63", done.stdout), done.stdout
    assert f"cluster '{cloud}' is removed; no resources remain" in done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_fault_example_of_the_page_runs_as_written(tmp_path: Path) -> None:
    done = run_block(block_of("curl "), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "credentials" in done.stdout

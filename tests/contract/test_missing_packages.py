"""A missing package is reported before any change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.support_clouds import CLOUDS, Cloud, Site, stand_in

UP = {
    "aws": ("up", "aws", "--yes"),
    "azure": ("up", "azure", "--yes"),
    "gcp": ("up", "gcp", "--yes"),
    "kubernetes": ("up", "kubernetes", "--yes", "--set", "cluster.settings.storage=s3://bucket/prefix"),
}
# Each cloud's SDK, the launcher's package and the package of its object store.
NEEDED = {
    "aws": ("boto3", "kubernetes", "s3fs"),
    "azure": ("azure.mgmt.storagecache", "kubernetes", "adlfs"),
    "gcp": ("google.cloud.lustre_v1", "kubernetes", "gcsfs"),
    "kubernetes": ("kubernetes", "fsspec"),
}
# The `sitecustomize` of a process: makes one module missing, or fail when it is imported.
BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise {error}("blocked", name=name)
        return None

sys.meta_path.insert(0, Blocked())
"""


@pytest.fixture(scope="module", params=CLOUDS)
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    with stand_in(request.param) as running:
        running.reset()
        yield running


def cloudrec(
    cloud: Cloud, folder: Path, *words: str, missing: str, error: str = "ModuleNotFoundError"
) -> subprocess.CompletedProcess[str]:
    """Run a command in which one module cannot be imported."""
    (folder / "sitecustomize.py").write_text(BLOCK.format(module=missing, error=error))
    environment = {
        **os.environ,
        **cloud.env,
        "PYTHONPATH": str(folder),
        "CLOUDREC_HOME": str(folder / "home"),
        "CLOUDREC_CLUSTER_OWNER": "tester",
    }
    program = "import sys; from cloudrec.cli.main import run; sys.exit(run(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_up_names_the_missing_extra_before_any_cloud_call(cloud: Cloud, tmp_path: Path) -> None:
    for module in NEEDED[cloud.name]:
        error = "ImportError" if module == "kubernetes" else "ModuleNotFoundError"
        before = len(cloud.calls())
        done = cloudrec(cloud, tmp_path, *UP[cloud.name], missing=module, error=error)
        assert done.returncode == 3, done.stderr
        assert module in done.stderr
        assert f"remedy: pip install 'cloudrec[{cloud.name}]'" in done.stderr
        assert cloud.changing(cloud.calls(before)) == []
        assert cloud.state() == []


COMMANDS = {
    "train": (("train", "--yes", "--image", f"registry.example/i@sha256:{'0' * 64}"), "kubernetes"),
    "train's storage": (("train", "--yes", "--image", f"registry.example/i@sha256:{'0' * 64}"), "s3fs"),
    "data push": (("data", "push", "data", "--cluster", "conformance"), "kubernetes"),
    "doctor": (("doctor", "kubernetes"), "kubernetes"),
    "down": (("down", "kubernetes", "--yes"), "kubernetes"),
}


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with stand_in("kubernetes") as running:
        running.reset()
        site = Site(running, tmp_path_factory.mktemp("adopted"))
        site.up()
        yield site


@pytest.mark.parametrize("command", COMMANDS)
def test_other_commands_name_the_missing_extra_before_any_change(adopted: Site, command: str) -> None:
    words, module = COMMANDS[command]
    cloud, before = adopted.cloud, len(adopted.cloud.calls())
    state = cloud.state()
    done = cloudrec(cloud, adopted.home.root.parent, *words, missing=module)
    assert done.returncode == 3, done.stderr
    extra = "aws" if module == "s3fs" else "kubernetes"
    assert f"remedy: pip install 'cloudrec[{extra}]'" in done.stderr
    assert cloud.changing(cloud.calls(before)) == []
    assert cloud.state() == state
    assert not (adopted.home.root / "runs").exists()

"""A real build of the image: its content, and training as in a pod."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudrec.version import __version__
from tests.e2e.support_image import BASE, ROOT, Store, build_flags, make_base, run_locked_up

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
_SPACE = 15 << 30  # bytes; every stage copies all stages below it
_IMAGE = f"cloudrec:{__version__}-plain-cpu"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("image")
    if shutil.disk_usage(folder).free < _SPACE:
        pytest.skip(f"a build needs {_SPACE >> 30} GiB of disk")
    tools = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "image_tools.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    if tools.returncode != 0:
        pytest.skip(tools.stderr.strip())
    made = Store(folder)
    made.make()
    make_base(made)
    yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def image(store: Store) -> str:
    conf, flags = build_flags(store.folder)
    command = [sys.executable, "-m", "cloudrec", "image", "build", "--cpu", "--builder", "buildah"]
    command += ["--base", BASE, "--pip-conf", str(conf), "-o", "json", "--", *flags]
    environment = {**store.environment, "CLOUDREC_HOME": str(store.folder / "home")}
    done = subprocess.run(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=3000
    )
    return str(json.loads(done.stdout)["image"]["name"])


@pytest.fixture(scope="module")
def root(store: Store, image: str) -> str:
    return store.buildah("mount", store.buildah("from", "--pull-never", image))


def test_the_image_runs_as_an_arbitrary_user_and_has_labels(store: Store, image: str) -> None:
    assert image == _IMAGE
    config = store.config(image)
    assert config["User"] == "10001:10001"
    assert "Entrypoint" not in config
    assert config["Labels"]["org.opencontainers.image.version"] == __version__
    assert (config["Labels"]["cloudrec.fabric"], config["Labels"]["cloudrec.device"]) == ("plain", "cpu")


def test_the_image_has_no_cache_no_pip_and_no_secret(root: str, store: Store) -> None:
    top = Path(root)
    left = ["etc/pip.conf", "root/.cache", "root/.config", "source", "wheels", "opt/cloudrec/bin/pip"]
    assert [name for name in left if (top / name).exists()] == []
    assert list((top / "var/lib/apt/lists").glob("*")) == []
    words = [line for line in (store.folder / "pip.conf").read_text().splitlines() if "=" in line]
    (site,) = (top / "opt" / "cloudrec" / "lib").glob("python3.*/site-packages")
    told = "\n".join(
        path.read_text(errors="replace") for path in site.glob("cloudrec-*.dist-info/*") if path.is_file()
    )
    assert [word for word in words if word in told] == []


def test_the_image_trains_as_its_user_with_a_read_only_root(
    root: str, store: Store, image: str, tmp_path: Path
) -> None:
    home = {**store.environment, "CLOUDREC_HOME": str(tmp_path / "home")}
    for words in (["synth", "raw", "--rows", "4000"], ["prepare", "raw", "prepared"]):
        command = [sys.executable, "-m", "cloudrec", "data", *words]
        subprocess.run(
            command, cwd=tmp_path, env={**home, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True
        )
    train = (
        "python -m trainer --dataset_path /cloudrec/data --output_dir /cloudrec/run --num_iterations 5 "
        "--batch_size 128 --embedding_dim 16 --dense_arch_layer_sizes 32,16"
    )
    program = (
        "cd /cloudrec && id --user >&2 && ! touch /x /opt/cloudrec/x && python -m torch.distributed.run "
        f"--standalone --nproc_per_node 2 --no-python {train} >&2 "
        "&& ls /cloudrec/home/.cache/cloudrec-trainer >&2 && cat /cloudrec/run/summary.json"
    )
    done = run_locked_up(root, tmp_path / "prepared", store.config(image)["Env"], program)
    print(done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("10001\n")
    assert "Read-only file system" in done.stderr
    assert "rows-" in done.stderr  # the kernels were compiled for this processor
    summary = json.loads(done.stdout)
    assert (summary["step"], summary["world_size"], summary["samples_seen"]) == (5, 2, 5 * 2 * 128)
    assert summary["versions"]["cloudrec"] == __version__

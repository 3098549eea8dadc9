"""`data prepare --on ray://...` on a real Ray cluster of two nodes: the bytes are those of one machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec_contract.features import parse
from tests.standins.ray_cluster import RayCluster, skip_without_ray
from tests.unit.data.test_features import SCHEMA, made
from tests.unit.data.test_prepare_parts import contents, described

ADDRESS = "ray://127.0.0.1:10001"
FILES = 4
PATIENCE_S = 200.0
TASK = "ray::_attempt"  # the name that Ray gives the process of such a task


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    skip_without_ray()
    with RayCluster(tmp_path_factory.mktemp("ray"), cpus=1) as cluster:
        cluster.add(2)
        yield cluster


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    for number in range(FILES):
        table = pa.concat_tables([pa.table(made(seed=number))] * (20 + number))
        pq.write_table(table, folder / f"{number}.parquet")
    (folder / "features.yaml").write_text(json.dumps(SCHEMA))
    return folder


@pytest.fixture(scope="module")
def alone(source: Path) -> Path:
    """The dataset of one machine."""
    prepare(str(source / "*.parquet"), source / "alone", options=PrepareOptions(seed=5), schema=parse(SCHEMA))
    return source / "alone"


def start(cluster: RayCluster, source: Path, files: str, out: Path) -> subprocess.Popen[str]:
    words = [files, str(out), "--features", str(source / "features.yaml"), "--seed", "5", "--on", ADDRESS]
    authority = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(cluster.token_file)}
    return subprocess.Popen(
        [sys.executable, "-m", "cloudrec", "data", "prepare", *words],
        env={**os.environ, **authority},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def tasks() -> dict[int, psutil.Process]:
    """The processes that run tasks now."""
    return {each.pid: each for each in psutil.process_iter(["cmdline"]) if TASK in str(each.info["cmdline"])}


def test_two_nodes_give_the_bytes_of_one_machine(
    cluster: RayCluster, source: Path, alone: Path, tmp_path: Path
) -> None:
    with start(cluster, source, str(source / "*.parquet"), tmp_path / "many") as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert contents(tmp_path / "many") == contents(alone)
    assert described(tmp_path / "many") == described(alone)


def test_tasks_of_killed_workers_are_repeated_with_the_same_bytes(
    cluster: RayCluster, source: Path, alone: Path, tmp_path: Path
) -> None:
    with start(cluster, source, str(source / "*.parquet"), tmp_path / "many") as process:
        killed: set[int] = set()
        give_up = time.monotonic() + PATIENCE_S
        while process.poll() is None:
            assert time.monotonic() < give_up
            for pid, worker in tasks().items() if len(killed) < 2 else ():
                worker.send_signal(signal.SIGKILL)
                killed.add(pid)
            time.sleep(0.005)
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert len(killed) >= 2, "some workers must be killed while they run tasks"
    assert contents(tmp_path / "many") == contents(alone)


def test_a_file_that_the_nodes_do_not_see_is_refused_before_any_work(
    cluster: RayCluster, source: Path, tmp_path: Path
) -> None:
    # The nodes have another process namespace, so this path leads nowhere there.
    hidden = Path(f"/proc/{os.getpid()}/root{source}") / "0.parquet"
    with start(cluster, source, str(hidden), tmp_path / "many") as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    assert re.search(rf"the Ray node 127\.0\.0\.[12] does not see {hidden}", errors)
    assert "a shared file system or a mounted bucket" in errors
    assert not (tmp_path / "many" / "dataset.json").exists()


def test_a_cluster_that_does_not_answer_is_an_error(
    cluster: RayCluster, source: Path, tmp_path: Path
) -> None:
    words = [str(source / "0.parquet"), str(tmp_path / "many"), "--features", str(source / "features.yaml")]
    done = subprocess.run(
        [sys.executable, "-m", "cloudrec", "data", "prepare", *words, "--on", "ray://127.0.0.1:10099"],
        env={**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(cluster.token_file)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 3
    assert "no use of the Ray cluster at ray://127.0.0.1:10099" in done.stderr

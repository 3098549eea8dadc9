"""The diagnosis of a collective that timed out, from the files of the pods."""

from __future__ import annotations

import pickle
from pathlib import Path

from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.kubernetes.watch.stuck import is_suspect, late_rank
from tests.unit.kubernetes_client.support_objects import pod


def _keep(folder: Path, pod_name: str, rank: int, newest: int) -> None:
    place = folder / "runs" / "run" / "pods" / f"{pod_name}-uid-{pod_name}" / "flight_recorder"
    place.mkdir(parents=True, exist_ok=True)
    entry = {
        "collective_seq_id": newest,
        "process_group": ("0", "default_pg"),
        "profiling_name": "nccl:all_reduce",
        "state": "started",
    }
    (place / f"rank_{rank}").write_bytes(pickle.dumps({"entries": [entry]}))


def test_the_dumps_of_the_current_launch_name_the_slow_rank(tmp_path: Path) -> None:
    spec = RunSpec(name="run", storage=str(tmp_path))
    for name, rank, newest in (("run-0", 0, 9), ("run-1", 1, 7), ("earlier", 0, 1)):
        _keep(tmp_path, name, rank, newest)
    said = late_rank(spec, [pod("run-0"), pod("run-1")])
    assert said.startswith("rank 1 held up the others: the last collective it is in is all_reduce #7")


def test_without_dumps_the_log_of_a_rank_shows_the_pending_collective(tmp_path: Path) -> None:
    spec = RunSpec(name="run", storage=str(tmp_path))
    folder = tmp_path / "runs" / "run" / "pods" / "run-0-uid-run-0"
    folder.mkdir(parents=True)
    (folder / "rank-1.log").write_text("RuntimeError: Timed out waiting 5000ms for recv operation\n")
    assert late_rank(spec, [pod("run-0")]) == "rank 1 waited 5 s in vain for a recv of another rank"


def test_dumps_are_read_only_after_a_timeout() -> None:
    assert is_suspect("pod x: Watchdog caught collective operation timeout")
    assert is_suspect("Timed out waiting 5000ms")
    assert not is_suspect("pod x: the trainer refuses its data")
    assert not is_suspect(None)

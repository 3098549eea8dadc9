"""Training in pods, one of which is lost; data, checkpoints and results are in a bucket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import s3fs

from tests.e2e.support_pods import PATIENCE_S, Pods, lines_of, lose, wait_for
from tests.standins.servers import moto_server
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import run_here

SETTINGS: dict[str, Any] = {
    "embedding_dim": 8,
    "dense_arch_layer_sizes": (8,),
    "over_arch_layer_sizes": (8, 1),
    "global_batch_size": 50,
    "num_epochs": 40,
    "log_interval": 20,
    "threads": 1,
}


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_pod_lost_with_its_node_is_continued_by_the_next_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(tmp_path / "data", train_rows=1003, test_rows=200, num_dense=3, num_sparse=4)
    with moto_server(tmp_path / "moto.log") as port:
        variables = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "test"),
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        bucket = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
        bucket.mkdir("a-bucket")
        bucket.put(str(tmp_path / "data"), "a-bucket/data", recursive=True)
        results = "a-bucket/runs/r"
        with Pods(
            folder=tmp_path,
            config={**SETTINGS, "checkpoint_interval": 100, "dataset_path": "s3://a-bucket/data"},
            results=f"s3://{results}",
            nodes=2,
            flags=("--checkpoint_dir", f"s3://{results}/checkpoints"),
        ) as pods:
            first, second = pods.start(0), pods.start(1)
            wait_for(lambda: bool(bucket.glob(f"{results}/checkpoints/step-*/commit-*.json")), first, second)
            wait_for(lambda: bucket.exists(f"{results}/metrics.jsonl"), first, second)
            assert lose(first) == []  # no process survives its pod
            again = pods.start(0, "b")
            assert (again.wait(PATIENCE_S), second.wait(PATIENCE_S)) == (0, 0)

            alone = run_here(tmp_path / "data", tmp_path / "alone", **SETTINGS)
            summary = json.loads(bucket.cat(f"{results}/summary.json"))
            for name in ("status", "step", "samples_seen", "samples_digest"):
                assert summary[name] == alone.summary[name]
            starts = [
                each for each in lines_of(bucket.cat(f"{results}/metrics.jsonl")) if each["kind"] == "start"
            ]
            assert [bool(each["resumed_from"]) for each in starts] == [False, True]
            assert starts[1]["near_bytes"] > 0  # the pod that stayed had its part on its own disk
            assert summary["restarts"] == 1
            assert summary["goodput_parts"]["restart_s"] > 0
            kept = {path.removeprefix(f"{results}/pods/") for path in bucket.find(f"{results}/pods")}
            assert {"r-0-a/rank-0.log", "r-0-b/rank-0.log", "r-1-a/rank-1.log", "r-1-a/events.jsonl"} <= kept
            log = bucket.cat(f"{results}/pods/r-0-b/rank-0.log").decode()
            assert log.startswith("=== launch 1, attempt 0, rank 0 of 2, ")
            assert "[rank 0] === launch 1, attempt 0, rank 0 of 2, " in pods.output(0, "b").read_text()
            assert "staged " in pods.output(1).read_text()

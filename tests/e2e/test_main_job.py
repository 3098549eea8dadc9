"""The main job through the real commands: data, cluster, two ranks, stop, resume, kill, report, down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.support_bench import SMALL, Bench

EPOCHS = 5
SOME = ("--num_epochs", str(EPOCHS), "--checkpoint_interval", "40")
FOR_EVER = ("--num_epochs", "1000", "--checkpoint_interval", "50")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("main"))
    try:
        bench.run("data", "synth", "raw", "--rows", "12000", "--seed", "3")
        bench.run("data", "prepare", "raw", "prepared")
        bench.run("data", "check", "prepared", "--deep")
        bench.run("up", "local")
        yield bench
    finally:
        for process in bench.processes():
            process.kill()


def launch(bench: Bench, name: str, *flags: str, ranks: int = 2, expect: int = 0) -> Any:
    arguments = ("--name", name, "--dataset", "prepared", "--nproc-per-node", str(ranks))
    return bench.ask("train", *arguments, "--detach", "--", *SMALL, *flags, expect=expect)


@pytest.fixture(scope="module")
def undisturbed(bench: Bench) -> dict[str, Any]:
    """Return the summary of an undisturbed run."""
    where = ("--name", "undisturbed", "--dataset", "prepared", "--nproc-per-node", "2")
    bench.run("train", *where, "--", *SMALL, *SOME)
    return bench.summary("undisturbed")


def test_a_stopped_and_resumed_run_produces_the_model_of_an_undisturbed_run(
    bench: Bench, undisturbed: dict[str, Any]
) -> None:
    launch(bench, "stopped", *SOME)
    bench.wait("stopped", lambda view: (view["step"] or 0) >= 60)
    (stopped,) = bench.ask("stop", "stopped")["runs"]
    assert stopped["state"] == "INTERRUPTED"
    assert stopped["checkpoint"] >= 60
    bench.wait_until_alone()
    (resumed,) = bench.ask("train", "--resume", "stopped")["runs"]
    assert resumed["state"] == "SUCCEEDED"
    one, two = undisturbed, bench.summary("stopped")
    assert one["samples_seen"] == EPOCHS * 12000
    for key in ("samples_seen", "samples_digest", "model_digest", "auc", "logloss"):
        assert one[key] == two[key], key
    bench.wait_until_alone()


@pytest.mark.soak
def test_a_killed_rank_is_restarted_without_lost_or_repeated_samples(
    bench: Bench, undisturbed: dict[str, Any]
) -> None:
    launch(bench, "killed", *SOME)
    bench.wait("killed", lambda view: (view["checkpoint"] or 0) >= 40)
    ranks = [process for process in bench.processes() if process.environ().get("RANK") == "1"]
    trainers = [process for process in ranks if "trainer" in process.cmdline()]
    trainers[-1].send_signal(signal.SIGKILL)
    view = bench.wait("killed", lambda view: view["state"] == "SUCCEEDED")
    assert view["restarts"] == 1
    assert bench.summary("killed")["samples_digest"] == undisturbed["samples_digest"]
    assert bench.summary("killed")["model_digest"] == undisturbed["model_digest"]
    bench.wait_until_alone()


@pytest.mark.soak
def test_a_run_continues_with_fewer_processes_and_the_same_global_batches(
    bench: Bench, undisturbed: dict[str, Any]
) -> None:
    launch(bench, "shrunk", *SOME)
    bench.wait("shrunk", lambda view: (view["step"] or 0) >= 60)
    running = bench.run("train", "--resume", "shrunk", "--nproc-per-node", "1", expect=2)
    assert "is running" in running.stderr
    assert bench.view("shrunk")["world_size"] == 2
    (stopped,) = bench.ask("stop", "shrunk")["runs"]
    assert stopped["state"] == "INTERRUPTED"
    for processes, reason in (("3", "3 processes cannot share evenly"), ("0", "must be at least 1")):
        refused = bench.run("train", "--resume", "shrunk", "--nproc-per-node", processes, expect=2)
        assert reason in refused.stderr
    shown = bench.ask("train", "--resume", "shrunk", "--nproc-per-node", "1", "--dry-run")["launch"]
    assert shown["command"][-1] == "--global_batch_size=128"
    assert bench.view("shrunk")["world_size"] == 2  # a dry run changes nothing
    (resumed,) = bench.ask("train", "--resume", "shrunk", "--nproc-per-node", "1")["runs"]
    assert (resumed["state"], resumed["world_size"]) == ("SUCCEEDED", 1)
    one, two = undisturbed, bench.summary("shrunk")
    for key in ("step", "samples_seen", "samples_digest"):
        assert one[key] == two[key], key
    assert two["world_size"] == 1
    assert two["logloss"] == pytest.approx(one["logloss"], rel=1e-3)
    refused = bench.run("train", "--resume", "shrunk", "--nproc-per-node", "2", expect=2)
    assert "has finished" in refused.stderr
    assert bench.view("shrunk")["world_size"] == 1
    bench.wait_until_alone()


@pytest.mark.soak  # `make test` covers this with the fake trainer: test_local_launcher.py
def test_a_killed_supervisor_leaves_no_process_and_a_resumable_run(bench: Bench) -> None:
    launch(bench, "orphaned", *FOR_EVER, ranks=1)
    view = bench.wait("orphaned", lambda view: (view["checkpoint"] or 0) >= 50)
    os.kill(view["pid"], signal.SIGKILL)
    bench.wait_until_alone()
    view = bench.view("orphaned")
    assert view["state"] == "FAILED"
    assert "its process is gone" in view["cause"]
    bench.run("train", "--resume", "orphaned", "--detach")
    bench.wait("orphaned", lambda view: (view["checkpoint"] or 0) >= 150)
    assert bench.ask("stop", "orphaned")["runs"][0]["state"] == "INTERRUPTED"
    bench.wait_until_alone()


@pytest.mark.usefixtures("undisturbed")
def test_bad_data_and_bad_configuration_are_reported_at_the_start(bench: Bench) -> None:
    refused = bench.run("train", "--dataset", "prepared", "--", "--embeding_dim", "8", expect=2)
    assert "embedding_dim" in refused.stderr
    refused = bench.run("train", "--dataset", "prepared", "--", "--batch_size", "0", expect=2)
    assert "batch_size" in refused.stderr
    refused = bench.run("train", "--name", "nodata", "--dataset", "nowhere", "--", *SMALL, expect=2)
    assert "nowhere" in refused.stderr
    refused = bench.run("train", "--", "--dataset-path=elsewhere", *SMALL, expect=2)
    assert f"there is no dataset at {bench.folder / 'elsewhere'}" in refused.stderr
    refused = bench.run("train", "--name", "undisturbed", "--dataset", "prepared", expect=2)
    assert "a run 'undisturbed' exists already" in refused.stderr
    refused = bench.run("train", "--resume", "undisturbed", expect=2)
    assert "has finished" in refused.stderr
    refused = bench.run("stop", "undisturbed", expect=2)
    assert "is not running" in refused.stderr
    refused = bench.run("train", "--resume", "undisturbed", "--", "--batch_size", "1", expect=2)
    assert "keeps its configuration" in refused.stderr
    launch(bench, "huge", "--batch_size", "1000000")
    failed = bench.wait("huge", lambda view: view["state"] == "FAILED")
    assert "batch_size" in failed["cause"]
    assert failed["restarts"] == 0  # a retry would fail again


def test_ctrl_c_in_an_attached_run_leaves_a_checkpoint(bench: Bench) -> None:
    hearing = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from cloudrec.cli import main; main()"
    )
    arguments = ("train", "--name", "attached", "--dataset", "prepared", "--", *SMALL, *FOR_EVER)
    with subprocess.Popen(
        [sys.executable, "-c", hearing, *arguments],
        cwd=bench.folder,
        env={**os.environ, "CLOUDREC_HOME": str(bench.home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        bench.wait_for_file("attached", "metrics.jsonl")
        bench.wait("attached", lambda view: (view["step"] or 0) >= 10)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=180)
    assert process.returncode == 130, told
    view = bench.view("attached")
    assert view["state"] == "INTERRUPTED"
    assert view["checkpoint"] is not None
    bench.wait_until_alone()


@pytest.mark.usefixtures("undisturbed")
def test_logs_and_report_describe_a_finished_run(bench: Bench) -> None:
    assert bench.run("status", "undisturbed").stdout.startswith("RUN ")
    assert "finished at step" in bench.run("logs", "undisturbed").stdout
    assert bench.run("logs", "undisturbed", "--rank", "1", "--tail", "1").stdout.count("\n") == 1
    assert "it has ranks 0 to 1" in bench.run("logs", "undisturbed", "--rank", "2", expect=2).stderr
    bench.run("report", "undisturbed", "--out", "page.html")
    page = (bench.folder / "page.html").read_text(encoding="utf-8")
    assert "undisturbed" in page
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_a_dry_run_prints_the_command_and_creates_nothing(bench: Bench) -> None:
    launched = bench.ask("train", "--name", "dry", "--dataset", "prepared", "--dry-run")["launch"]
    assert "torch" in " ".join(launched["command"]) or "elastic" in " ".join(launched["command"])
    assert "dataset_path" in launched["files"]["trainer.yaml"]
    assert not (bench.home / "runs" / "dry").exists()


def test_down_stops_runs_and_leaves_nothing(bench: Bench) -> None:
    launch(bench, "running", *FOR_EVER, ranks=1)
    bench.wait("running", lambda view: (view["step"] or 0) >= 10)
    bench.run("down", "--yes")
    bench.wait_until_alone()
    assert bench.ask("leaks", "local")["resources"] == []
    assert bench.ask("status") == {"schema_version": 1, "clusters": [], "runs": []}
    assert list((bench.home / "runs").iterdir()) == []

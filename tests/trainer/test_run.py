from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cloudrec.process.ports import free_port
from cloudrec_contract.end_event import EndEvent
from cloudrec_contract.exit_codes import PEER_LOST
from tests.trainer.support_dataset import Rows, write_dataset, write_rows
from tests.trainer.support_runs import command, kill, run_here, start, wait_until
from trainer.__main__ import main
from trainer.base.errors import CheckpointError, ConfigError, DatasetError, NonFiniteLossError

if TYPE_CHECKING:
    from pathlib import Path

EXACT = {"deterministic": True, "num_epochs": 2}
TRAIN_ROWS, TEST_ROWS, FEATURES = 1000, 200, 4


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    write_dataset(path, train_rows=TRAIN_ROWS, test_rows=TEST_ROWS, num_dense=3, num_sparse=FEATURES)
    return path


def _summary(directory: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    return values


def _same_end(summaries: list[dict[str, Any]]) -> bool:
    names = ("model_digest", "samples_digest", "samples_seen", "auc", "logloss", "step")
    return len({tuple(summary[name] for name in names) for summary in summaries}) == 1


def test_a_run_writes_its_metrics_and_summary(dataset: Path, tmp_path: Path) -> None:
    outcome = run_here(dataset, tmp_path, eval_interval=30, checkpoint_interval=20, num_epochs=2)
    assert outcome.code == 0
    summary = outcome.summary
    assert (summary["status"], summary["step"], summary["epochs"]) == ("finished", 80, 2.0)
    assert (summary["samples_seen"], summary["world_size"], summary["restarts"]) == (2000, 1, 0)
    assert summary["checkpoint"]["count"] == 4
    assert 0 < summary["goodput"] <= 1
    assert [line["step"] for line in outcome.lines("eval")] == [30, 60, 80]
    assert [line["step"] for line in outcome.lines("checkpoint")] == [20, 40, 60, 80]
    trained = outcome.lines("train")
    assert [line["step"] for line in trained] == list(range(5, 81, 5))
    assert all(math.isfinite(line["loss"]) and line["data_wait_s"] >= 0 for line in trained)
    assert sum(line["ckpt_stall_s"] for line in trained) > 0
    assert list((tmp_path / "tensorboard").iterdir())


def test_a_run_without_a_model_digest_trains_the_same_and_reports_it_as_unknown(
    dataset: Path, tmp_path: Path
) -> None:
    hashed = run_here(dataset, tmp_path / "hashed", **EXACT).summary
    plain = run_here(dataset, tmp_path / "plain", **EXACT, model_digest=False).summary
    assert hashed["model_digest"] is not None
    assert plain["model_digest"] is None
    assert (plain["auc"], plain["samples_digest"]) == (hashed["auc"], hashed["samples_digest"])


def test_the_same_seed_gives_the_same_model_and_another_seed_another(dataset: Path, tmp_path: Path) -> None:
    summaries = [run_here(dataset, tmp_path / name, **EXACT).summary for name in ("a", "b")]
    other = run_here(dataset, tmp_path / "c", **EXACT, seed=1).summary
    assert _same_end(summaries)
    assert other["model_digest"] != summaries[0]["model_digest"]
    assert other["samples_digest"] == summaries[0]["samples_digest"]


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
def test_an_interrupted_run_equals_an_uninterrupted_one(
    dataset: Path, tmp_path: Path, optimizer: str
) -> None:
    settings = {**EXACT, "dense_optimizer": optimizer, "lr_decay": "none"}
    whole = run_here(dataset, tmp_path / "whole", **settings)
    for steps in (13, 40, None):
        parts = run_here(dataset, tmp_path / "parts", **settings, num_iterations=steps)
    assert _same_end([whole.summary, parts.summary])
    assert [line["resumed_from"] for line in parts.lines("start")] == [None, 13, 40]
    assert [line["attempt"] for line in parts.lines("start")] == [0, 1, 2]


def test_a_finished_run_started_again_reports_the_same_summary(dataset: Path, tmp_path: Path) -> None:
    assert _same_end([run_here(dataset, tmp_path, **EXACT).summary for _ in range(2)])


def test_the_order_of_samples_differs_per_epoch_by_default(dataset: Path, tmp_path: Path) -> None:
    digests = {
        run_here(dataset, tmp_path / str(shuffle), **EXACT, shuffle=shuffle).summary["model_digest"]
        for shuffle in (True, False)
    }
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"batch_size": 1001}, ConfigError, "has 1000; set batch_size to at most 1000"),
        ({"num_embeddings": 49}, ConfigError, "the table of C1 has 49 rows, but the dataset's ids need 50"),
        ({"num_embeddings_per_feature": (50, 50)}, ConfigError, "has 2 sizes, but the dataset has 4"),
        ({"device": "cuda"}, ConfigError, "torch sees no GPU on this machine"),
    ],
)
def test_settings_that_do_not_fit_the_data_or_the_machine_are_refused(
    dataset: Path, tmp_path: Path, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run_here(dataset, tmp_path, **settings)


def test_tables_can_be_larger_than_needed(dataset: Path, tmp_path: Path) -> None:
    assert run_here(dataset, tmp_path, num_embeddings=64, num_iterations=3).code == 0


def test_a_missing_dataset_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output_dir", str(tmp_path), "--dataset_path", str(tmp_path / "none")]) == 65
    assert capsys.readouterr().err.startswith("error: ")


def test_without_data_the_trainer_trains_on_made_up_samples_and_states_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (
        "--embedding_dim 8 --dense_arch_layer_sizes 8 --over_arch_layer_sizes 8,1 --num_embeddings 50"
        " --batch_size 64 --eval_batch_size 65536"
    )
    assert main(["--output_dir", str(tmp_path), *flags.split()]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("no data is given: training 200 steps on made-up samples, which teach nothing;")
    assert "finished at step 200 of 200, 12800 samples" in printed


def test_a_changed_byte_of_the_data_is_detected(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", train_rows=100, test_rows=50)
    damaged = tmp_path / "data" / "train" / "shard-00000.dense.npy"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(DatasetError, match=r"shard-00000\.dense\.npy"):
        run_here(tmp_path / "data", tmp_path / "run")


def test_a_checkpoint_of_another_model_is_refused(dataset: Path, tmp_path: Path) -> None:
    run_here(dataset, tmp_path, num_iterations=5)
    with pytest.raises(CheckpointError, match="embedding_dim"):
        run_here(dataset, tmp_path, embedding_dim=12, dense_arch_layer_sizes=(12,))
    with pytest.raises(CheckpointError, match=r"holds checkpoints up to step 5, and resume is off"):
        run_here(dataset, tmp_path, resume=False)


def test_a_non_finite_loss_is_reported_with_its_step_and_the_last_checkpoint(
    tmp_path: Path, dataset: Path
) -> None:
    settings = {"dense_optimizer": "sgd", "dense_learning_rate": 1e30, "checkpoint_interval": 1}
    settings |= {"shuffle": False, "log_interval": 1}
    with pytest.raises(NonFiniteLossError) as caught:
        run_here(dataset, tmp_path, **settings)
    message = str(caught.value)
    assert "the loss became NaN or infinite at step 2 " in message
    assert "in the batch of samples 25, 26, 27, 28, 29, 30, 31, 32 and 17 more" in message
    assert "the last good checkpoint is that of step 1 in" in message


def test_an_output_folder_that_cannot_be_written_is_reported(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"output_dir .*file cannot be written"):
        run_here(dataset, tmp_path / "file", checkpoint_dir=str(tmp_path / "checkpoints"))


def _crossed_rows(rows: int, seed: int) -> Rows:
    """Labels that follow only which ids come together: single features carry no information."""
    random = np.random.default_rng(seed)
    sparse = random.integers(0, 8, (FEATURES, rows), dtype=np.int32)
    likely = np.where((sparse[0] + sparse[1]) % 2 == 0, 0.9, 0.1)
    labels = (random.random(rows) < likely).astype(np.uint8)
    return Rows(labels, random.random((rows, 2), dtype=np.float32), sparse)


def test_the_model_learns_feature_interactions(tmp_path: Path) -> None:
    contents = {"train": _crossed_rows(20_000, 0), "test": _crossed_rows(4000, 1)}
    sizes = {f"C{index + 1}": 8 for index in range(FEATURES)}
    write_rows(tmp_path / "data", contents, num_embeddings=sizes, shard_rows=8192)
    settings = {"dense_optimizer": "adam", "dense_learning_rate": 0.01, "learning_rate": 0.1}
    outcome = run_here(tmp_path / "data", tmp_path / "run", **settings, batch_size=100, num_epochs=2)
    assert outcome.summary["auc"] > 0.88  # the best is 0.9, the best linear model's 0.5
    assert outcome.summary["ne"] < 0.6


def test_a_stop_saves_and_exits_with_75_and_the_resumed_run_equals_an_uninterrupted_one(
    dataset: Path, tmp_path: Path
) -> None:
    settings = {**EXACT, "num_epochs": 30}
    whole = run_here(dataset, tmp_path / "whole", **settings)
    process = start(command(dataset, tmp_path / "parts", **settings), tmp_path / "log")
    try:
        wait_until((tmp_path / "parts" / "metrics.jsonl").exists, process)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 75, (tmp_path / "log").read_text()
    finally:
        kill(process)
    stopped = _summary(tmp_path / "parts")
    assert stopped["status"] == "stopped"
    assert stopped["checkpoint"]["last_step"] == stopped["step"] < whole.summary["step"]
    assert _same_end([whole.summary, run_here(dataset, tmp_path / "parts", **settings).summary])


@pytest.mark.soak  # the chaos tests do so hundreds of times, too
def test_two_ranks_killed_at_any_moment_resume_from_the_last_checkpoint(
    dataset: Path, tmp_path: Path
) -> None:
    settings = {**EXACT, "num_epochs": 8, "checkpoint_interval": 20}
    words = {name: command(dataset, tmp_path / name, ranks=2, **settings) for name in ("whole", "parts")}
    process = start(words["parts"], tmp_path / "log")
    try:
        committed = tmp_path / "parts" / "checkpoints" / "step-00000020" / "commit-00000001.json"
        wait_until(committed.exists, process)
    finally:
        kill(process)
    for name in ("whole", "parts"):
        process = start(words[name], tmp_path / "log")
        try:
            assert process.wait(300) == 0, (tmp_path / "log").read_text()
        finally:
            kill(process)
    assert _same_end([_summary(tmp_path / name) for name in words])


@pytest.mark.parametrize(
    ("package", "content", "message"),
    [
        (
            "torch",
            "raise ModuleNotFoundError('No module named torch', name='torch')",
            "needs torch, which is not",
        ),
        (
            "torchrec",
            "raise OSError('fbgemm_gpu_py.so: undefined symbol: _ZN3c10')",
            "do not fit one another",
        ),
    ],
)
def test_missing_or_incompatible_libraries_are_named_with_the_install_command(
    tmp_path: Path, package: str, content: str, message: str
) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(content)
    words = [sys.executable, "-m", "trainer", "--dataset_path", "data"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert "install a matching trio" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("interval", "awaited", "saved"),
    [pytest.param(0, '"train"', False, marks=pytest.mark.soak), (20, '"checkpoint"', True)],
)
def test_a_rank_with_a_lost_peer_exits_with_its_code_and_an_event(
    dataset: Path, tmp_path: Path, interval: int, awaited: str, *, saved: bool
) -> None:
    port = free_port()
    words = command(dataset, tmp_path, num_epochs=5000, checkpoint_interval=interval)
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    processes = [
        start(
            words,
            log,
            **common,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            CLOUDREC_END_EVENT=str(tmp_path / f"end-{rank}.json"),
        )
        for rank, log in enumerate(logs)
    ]
    try:
        wait_until(lambda: (tmp_path / "metrics.jsonl").exists() and awaited in _read(tmp_path), processes[0])
        kill(processes[1])
        assert processes[0].wait(300) == PEER_LOST
    finally:
        for process in processes:
            kill(process)
    message = logs[0].read_text().splitlines()[-1]
    assert message.startswith("error: lost contact with another rank")
    event = EndEvent.read(tmp_path / "end-0.json")
    assert event is not None
    assert (event.exit_code, event.kind, f"error: {event.cause}") == (PEER_LOST, "peer_lost", message)
    assert (event.checkpoint is not None, event.machine_leaves) == (saved, False)
    assert EndEvent.read(tmp_path / "end-1.json") is None  # it was killed


def _read(directory: Path) -> str:
    return (directory / "metrics.jsonl").read_text()

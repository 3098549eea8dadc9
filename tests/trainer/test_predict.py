from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from tests.trainer.support_dataset import Rows, write_dataset, write_rows
from tests.trainer.support_runs import Outcome, run_here
from trainer.commands import export, predict
from trainer.data.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainer.base.config import TrainerConfig

# fbgemm's own registration; that such runs learn alike is tested with the plans
QUIET = pytest.mark.filterwarnings("ignore:fbgemm..dense_embedding_codegen_lookup:UserWarning")
SIZES = {"C1": 30, "C2": 25, "C3": 40}


def _rows(rows: int, seed: int) -> Rows:
    random = np.random.default_rng(seed)
    sparse = np.stack([random.integers(0, size, rows) for size in SIZES.values()]).astype(np.int32)
    dense = random.random((rows, 2), dtype=np.float32)
    score = 2.0 * ((sparse[0] + sparse[1]) % 2) + (sparse[2] % 3) + dense[:, 0] - 2.5
    labels = random.random(rows) < 1 / (1 + np.exp(-score))
    return Rows(labels.astype(np.uint8), dense, sparse)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome, Rows]:
    """A dataset, a run that has learnt it well, and the true rows of its test split."""
    base = tmp_path_factory.mktemp("learned")
    contents = {"train": _rows(12_000, 0), "test": _rows(50_000, 1)}  # few would add noise to an AUC's change
    write_rows(base / "data", contents, num_embeddings=SIZES, shard_rows=4096)
    settings = {"embedding_dim": 16, "dense_arch_layer_sizes": (16,), "over_arch_layer_sizes": (32, 1)}
    settings |= {"learning_rate": 0.1, "dense_learning_rate": 0.01, "batch_size": 100, "num_epochs": 2}
    outcome = run_here(base / "data", base / "run", **settings, checkpoint_interval=100)
    assert outcome.summary["auc"] > 0.72
    return base / "data", outcome, contents["test"]


def _predict(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    assert predict.main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    return json.loads(captured.out) if code == 0 else captured.err


def test_predicted_scores_equal_those_of_the_evaluation(
    learned: tuple[Path, Outcome, Rows], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, outcome, truth = learned
    checkpoints, out = outcome.directory / "checkpoints", tmp_path / "scores.npy"
    result = _predict(
        capsys, "--checkpoint", checkpoints, "--dataset-path", data, "--out", out, "--batch-size", 333
    )
    for name in ("auc", "logloss", "ne", "calibration"):
        assert result[name] == pytest.approx(outcome.summary[name], abs=1e-6)
    assert (result["step"], result["samples"]) == (outcome.summary["step"], 50_000)
    scores = np.load(out)
    assert (scores.dtype, scores.shape) == (np.float32, (50_000,))
    assert roc_auc_score(truth.labels, scores) == pytest.approx(result["auc"], abs=1e-5)
    assert log_loss(truth.labels, scores) == pytest.approx(result["logloss"], abs=1e-5)


def test_an_older_checkpoint_can_be_selected(
    learned: tuple[Path, Outcome, Rows], capsys: pytest.CaptureFixture[str]
) -> None:
    data, outcome, _ = learned
    words = ("--checkpoint", outcome.directory / "checkpoints", "--dataset_path", data)
    kept = [line["step"] for line in outcome.lines("checkpoint")][-2:]
    assert _predict(capsys, *words, "--step", kept[0])["step"] == kept[0]
    assert _predict(capsys, *words, "--split", "train")["samples"] == 12_000
    assert f"it has {kept[0]}, {kept[1]}" in _predict(capsys, *words, "--step", 1, code=1)


@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_an_export_scores_like_its_checkpoint_and_quantised_tables_are_close(
    learned: tuple[Path, Outcome, Rows],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    quantization: str,
) -> None:
    data, outcome, _ = learned
    model = ["--checkpoint", str(outcome.directory / "checkpoints"), "--quantize", quantization]
    assert export.main([*model, "--out", str(tmp_path / "model")]) == 0
    written = json.loads(capsys.readouterr().out)
    direct = _predict(capsys, *model, "--dataset_path", data)
    exported = _predict(capsys, "--checkpoint", tmp_path / "model", "--dataset_path", data)
    assert exported == direct
    assert exported["quantization"] == written["quantization"] == quantization
    assert exported["auc"] == pytest.approx(outcome.summary["auc"], abs=5e-4)
    rows = np.load(tmp_path / "model" / "tables" / "C1.npy")
    widths = {"none": (16, np.float32), "int8": (20, np.uint8), "int4": (12, np.uint8)}
    assert (rows.shape[0], rows.shape[1], rows.dtype) == (30, *widths[quantization])


def test_a_model_trained_with_any_sharding_can_be_scored(
    learned: tuple[Path, Outcome, Rows], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, outcome, _ = learned
    words = ["--checkpoint", str(outcome.directory / "checkpoints"), "--out", str(tmp_path / "model")]
    assert export.main(words) == 0
    capsys.readouterr()
    file = tmp_path / "model" / "config.json"
    document = json.loads(file.read_text())
    document["config"]["sharding_types"] = ["column_wise"]  # which training with rowwise_adagrad refuses
    file.write_text(json.dumps(document))
    scored = _predict(capsys, "--checkpoint", tmp_path / "model", "--dataset_path", data)
    assert scored["auc"] == pytest.approx(outcome.summary["auc"], abs=1e-6)


def test_a_changed_export_is_refused(
    learned: tuple[Path, Outcome, Rows], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, outcome, _ = learned
    words = ["--checkpoint", str(outcome.directory / "checkpoints"), "--out", str(tmp_path / "model")]
    assert export.main(words) == 0
    assert export.main(words) == 64
    assert "is not an empty folder" in capsys.readouterr().err
    table = tmp_path / "model" / "tables" / "C2.npy"
    content = bytearray(table.read_bytes())
    content[-1] ^= 1
    table.write_bytes(content)
    words = ["--checkpoint", str(tmp_path / "model"), "--dataset_path", str(data)]
    assert "C2.npy: its sha256 is" in _predict(capsys, *words, code=1)


def test_a_damaged_checkpoint_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dataset(tmp_path / "data", num_dense=2, num_sparse=2)
    outcome = run_here(tmp_path / "data", tmp_path / "run", checkpoint_interval=20)
    newest = outcome.directory / "checkpoints" / "step-00000040" / "rank-00000.1.2.bin"
    newest.write_bytes(newest.read_bytes()[:-1])
    capsys.readouterr()  # the run's own lines
    words = ("--checkpoint", outcome.directory / "checkpoints", "--dataset_path", tmp_path / "data")
    assert _predict(capsys, *words)["step"] == 20


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"--checkpoint": "nowhere"}, 1, "holds no committed checkpoint"),
        ({"--dataset_path": "nowhere"}, 65, "no such folder"),
        ({"--dataset_path": "other"}, 65, "the dataset has C1, C2"),
        ({"--dataset_path": "larger"}, 65, "the dataset is encoded otherwise than the data that the model"),
        ({"--batch_size": "0"}, 64, "batch_size is 0; it must be at least 1"),
        ({"--out": "missing/scores.npy"}, 64, "there is no folder missing"),
        ({"--dataset": "a:b"}, 64, "not allowed with argument --dataset"),
        ({"--split": "all"}, 64, "invalid choice: 'all'"),
        ({"--quantize": "int8", "--device": "cuda"}, 64, "device is cuda"),
    ],
)
def test_invalid_requests_are_reported(
    learned: tuple[Path, Outcome, Rows],
    tmp_path: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, str],
    code: int,
    message: str,
) -> None:
    data, outcome, _ = learned
    monkeypatch.chdir(tmp_path)
    write_dataset(tmp_path / "other", num_dense=2, num_sparse=2)
    larger = SIZES | {"C1": 31}
    contents = {"train": _rows(20, 0), "test": _rows(10, 1)}
    write_rows(tmp_path / "larger", contents, num_embeddings=larger, shard_rows=50)
    values = {"--checkpoint": str(outcome.directory / "checkpoints"), "--dataset_path": str(data), **change}
    words = [word for pair in values.items() for word in pair]
    error = _predict(capsys, *words, code=code)
    assert error.startswith("error: ")
    assert message in error


@pytest.mark.parametrize(
    "settings",
    [
        {"interaction": "dcn"},
        {"embedding_weight_precision": "fp16"},
        pytest.param({"data_parallel": True}, marks=QUIET, id="data_parallel"),
        {"precision": "bf16"},
        {"dense_optimizer": "sgd", "table_optimizer": "adagrad"},
        {"pipeline": "sparse_dist"},
        {"hash_overflow": True, "num_embeddings": 20},
    ],
    ids=lambda settings: "-".join(f"{name}={value}" for name, value in settings.items()),
)
def test_every_kind_of_model_is_scored_like_its_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, Any]
) -> None:
    write_dataset(tmp_path / "data", num_dense=2, num_sparse=3)
    outcome = run_here(tmp_path / "data", tmp_path / "run", **settings)
    capsys.readouterr()  # the run's own lines
    words = ("--checkpoint", outcome.directory / "checkpoints", "--dataset_path", tmp_path / "data")
    result = _predict(capsys, *words)
    for name in ("auc", "logloss"):
        assert result[name] == pytest.approx(outcome.summary[name], abs=1e-6)


class _Bags:
    """A custom loader: sample i has one to three ids of C1 and one of C2."""

    dense_features, sparse_features = ("I1",), ("C1", "C2")
    num_embeddings = {"C1": 7, "C2": 5}  # noqa: RUF012 - as a user would write it
    resumable, digest = True, "bags"

    def rows(self, split: str) -> int:
        return 1000 if split == "train" else 200

    def batches(
        self, split: str, *, batch_size: int, rank: int, world_size: int, start_sample: int, **_: Any
    ) -> Iterator[Batch]:
        assert (rank, world_size) == (0, 1)
        for start in range(start_sample, self.rows(split), batch_size):
            ids = torch.arange(start, min(start + batch_size, self.rows(split)))
            lengths = torch.stack([ids % 3 + 1, torch.ones_like(ids)]).int()
            sparse = torch.cat([(ids % 7).repeat_interleave(lengths[0]), ids % 5]).int()
            labels = (ids % 7 < 3 + ids % 2).float()
            yield Batch((ids % 3).float()[:, None], sparse, labels, ids, len(ids), lengths)


def bags(_: TrainerConfig) -> _Bags:
    return _Bags()


@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_a_custom_loader_is_scored_like_its_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quantization: str
) -> None:
    loader = "tests.trainer.test_predict:bags"
    outcome = run_here(None, tmp_path / "run", dataset=loader, num_epochs=3)
    capsys.readouterr()  # the run's own lines
    out = tmp_path / "scores.npy"
    words = ("--checkpoint", outcome.directory / "checkpoints", "--dataset", loader, "--out", out)
    result = _predict(capsys, *words, "--quantize", quantization)
    tolerance = 1e-6 if quantization == "none" else 0.01
    assert result["logloss"] == pytest.approx(outcome.summary["logloss"], abs=tolerance)
    labels = [sample % 7 < 3 + sample % 2 for sample in range(200)]
    assert roc_auc_score(labels, np.load(out)) == pytest.approx(result["auc"], abs=1e-6)
    assert "No module named 'nowhere'" in _predict(capsys, *words[:2], "--dataset", "nowhere:make", code=64)


def test_raw_text_is_scored_with_the_tables_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    lines = [
        "\t".join(
            [str(label), *(str(i) for i in range(13)), *(f"{random.integers(99):x}" for _ in range(26))]
        )
        for label in random.integers(0, 2, 400)
    ]
    for split in ("train", "test"):
        (tmp_path / "data" / split).mkdir(parents=True)
        (tmp_path / "data" / split / "day.tsv").write_text("\n".join(lines) + "\n")
    outcome = run_here(tmp_path / "data", tmp_path / "run", num_embeddings=50)
    capsys.readouterr()  # the run's own lines
    words = ("--checkpoint", outcome.directory / "checkpoints", "--dataset_path", tmp_path / "data")
    assert _predict(capsys, *words)["auc"] == pytest.approx(outcome.summary["auc"], abs=1e-6)


def test_vectors_of_raw_rows_are_refused_with_the_way_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--checkpoint",
        "none",
        "--raw",
        "rows.csv",
        "--vectors",
        "item",
        "--out",
        str(tmp_path / "v.npy"),
    ]
    assert predict.main(words) == 64
    error = capsys.readouterr().err
    assert error.startswith("error: vectors is item, but raw rows are only scored; prepare them with")
    assert "give --dataset_path" in error

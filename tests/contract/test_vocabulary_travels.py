"""Checkpoints and exports contain the dataset's vocabulary, and `data prepare --like` reads it from them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from tests.trainer.support_dataset import make_version_1
from tests.trainer.support_runs import Outcome, run_here
from trainer.base.errors import CheckpointError, DatasetError
from trainer.checkpoint.format.commit import encode_commit, parse_commit
from trainer.commands import export, predict

VALUES, HALF, MIN_FREQUENCY = 40, 3000, 2
MODEL: dict[str, Any] = {"embedding_dim": 4, "dense_arch_layer_sizes": (4,), "over_arch_layer_sizes": (8, 1)}
MODEL |= {"learning_rate": 0.2, "dense_learning_rate": 0.01, "batch_size": 50, "num_epochs": 3, "threads": 1}


def _half(seed: int, *, rename: int = 0) -> str:
    """Rows whose labels depend on C1; values that are frequent in the second half are rare in the first."""
    random = np.random.default_rng(seed)
    ranks = np.minimum(random.geometric(0.08, (HALF, 26)) - 1, VALUES - 1)
    codes = (ranks if seed == 1 else VALUES - 1 - ranks) * 0x01010101 % 2**32
    labels = random.random(HALF) < np.where(codes[:, 0] // 0x01010101 % 2, 0.9, 0.1)
    rows = zip(labels.astype(int).tolist(), (codes ^ rename).tolist(), strict=True)
    numbers = "\t".join("1" for _ in range(13))
    return "".join(f"{label}\t{numbers}\t" + "\t".join(f"{c:08x}" for c in row) + "\n" for label, row in rows)


def _prepare(source: Path, out: Path, **options: Any) -> Path:
    if "like" not in options:
        options["min_frequency"] = MIN_FREQUENCY
    prepare(str(source), out, options=PrepareOptions(**options, shard_rows=1000))
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two halves of the data: the first prepared, the second prepared separately and like the first."""
    folder = tmp_path_factory.mktemp("halves")
    for name, text in {"one": _half(1), "two": _half(2), "renamed": _half(1, rename=0x40)}.items():
        (folder / f"{name}.tsv").write_text(text)
        _prepare(folder / f"{name}.tsv", folder / name)
    _prepare(folder / "two.tsv", folder / "like", like=str(folder / "one"))
    return folder


@pytest.fixture(scope="module")
def learned(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A model trained on the first half."""
    outcome = run_here(folder / "one", tmp_path_factory.mktemp("runs") / "one", **MODEL)
    assert outcome.summary["auc"] > 0.8
    return outcome


def _digest(dataset: Path) -> str:
    digest: str = json.loads((dataset / "dataset.json").read_text())["encoding"]["digest"]
    return digest


def _arrays(dataset: Path) -> dict[str, bytes]:
    return {path.relative_to(dataset).as_posix(): path.read_bytes() for path in dataset.glob("*/*.npy")}


def _ids(dataset: Path) -> dict[tuple[str, int], int]:
    """The id of every known value of every feature."""
    files = [(path.stem, np.load(path).tolist()) for path in (dataset / "vocabulary").iterdir()]
    return {(feature, code): place for feature, codes in files for place, code in enumerate(codes, 2)}


def _predict(capsys: pytest.CaptureFixture[str], model: Path, data: Path, *more: str) -> tuple[int, Any, str]:
    capsys.readouterr()
    code = predict.main(["--checkpoint", str(model), "--dataset_path", str(data), *more])
    captured = capsys.readouterr()
    return code, json.loads(captured.out or "null"), captured.err


def _export(learned: Outcome, folder: Path) -> Path:
    words = ["--checkpoint", str(learned.directory / "checkpoints"), "--out", str(folder)]
    assert export.main(words) == 0
    return folder


def test_two_datasets_share_ids_only_if_the_second_is_prepared_like_the_first(folder: Path) -> None:
    one, apart, like = (_ids(folder / name) for name in ("one", "two", "like"))
    common = one.keys() & apart.keys()
    changed = [value for value in common if one[value] != apart[value]]
    assert len(changed) > len(common) / 2
    assert like == one
    sparse = [np.concatenate([np.load(p) for p in sorted((folder / name / "train").glob("*.sparse.npy"))], 1)
              for name in ("two", "like")]  # fmt: skip
    values = {(feature, number): code for (feature, code), number in apart.items()}
    for feature in range(26):
        for number, liked in set(zip(sparse[0][feature].tolist(), sparse[1][feature].tolist(), strict=True)):
            code = values.get((f"C{feature + 1}", number))
            if code is not None:  # only in half two, or rare there
                assert liked == one.get((f"C{feature + 1}", code), 1)


def test_a_model_accepts_data_prepared_like_its_own_and_refuses_other_data(
    folder: Path, learned: Outcome, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = learned.directory / "checkpoints"
    code, result, error = _predict(capsys, model, folder / "two")
    assert (code, result) == (65, None)
    assert "the dataset is encoded otherwise than the data that the model learned from" in error
    assert all(_digest(folder / name)[:12] in error for name in ("one", "two"))
    assert "cloudrec data prepare --like" in error

    out = tmp_path / "scores.npy"
    code, result, error = _predict(capsys, model, folder / "like", "--out", str(out))
    assert (code, error) == (0, "")
    labels = np.concatenate([np.load(p) for p in sorted((folder / "like/test").glob("*.labels.npy"))])
    assert result["auc"] == pytest.approx(roc_auc_score(labels, np.load(out)), abs=1e-6)
    assert result["auc"] > 0.8


def test_an_export_contains_the_vocabulary_without_the_dataset(
    folder: Path, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = Path(shutil.copytree(folder / "one", tmp_path / "one"))
    outcome = run_here(dataset, tmp_path / "run", **MODEL | {"num_iterations": 10})
    shutil.rmtree(dataset)
    exported = _export(outcome, tmp_path / "export")
    again = tmp_path / "again"
    assert export.main(["--checkpoint", str(exported), "--quantize", "int8", "--out", str(again)]) == 0
    for model in (exported, again):
        like = _prepare(folder / "two.tsv", tmp_path / f"like-{model.name}", like=str(model))
        assert _arrays(like) == _arrays(folder / "like")
        assert _digest(like) == _digest(folder / "one")
        assert _predict(capsys, model, like)[0] == 0
        assert _predict(capsys, model, folder / "two")[0] == 65


def test_a_run_does_not_resume_on_data_with_another_encoding(folder: Path, tmp_path: Path) -> None:
    run_here(folder / "one", tmp_path, **MODEL | {"num_iterations": 10})
    with pytest.raises(
        DatasetError, match="the data is encoded otherwise than that of the checkpoint"
    ) as caught:
        run_here(folder / "two", tmp_path, **MODEL)
    assert all(_digest(folder / name)[:12] in str(caught.value) for name in ("one", "two"))
    with pytest.raises(CheckpointError, match="belongs to something else"):  # equal ids, but other rows
        run_here(folder / "like", tmp_path, **MODEL)


def test_equal_ids_for_different_values_are_a_different_encoding(
    folder: Path, learned: Outcome, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = [{k: v for k, v in _arrays(folder / n).items() if "shard" in k} for n in ("one", "renamed")]
    assert shards[0] == shards[1]
    run_here(folder / "one", tmp_path, **MODEL | {"num_iterations": 10})
    with pytest.raises(DatasetError, match="encoded otherwise"):
        run_here(folder / "renamed", tmp_path, **MODEL)
    assert _predict(capsys, learned.directory / "checkpoints", folder / "renamed")[0] == 65


def test_a_checkpoint_without_an_encoding_resumes_with_a_warning(
    folder: Path, *, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_here(folder / "one", tmp_path, **MODEL | {"num_iterations": 10})
    (path,) = (tmp_path / "checkpoints").glob("step-*/commit-*.json")
    commit = parse_commit(str(path), path.read_bytes())
    old = {name: value for name, value in commit.extra.items() if name != "encoding"}
    path.write_bytes(encode_commit(replace(commit, extra=old)))
    capfd.readouterr()

    outcome = run_here(folder / "one", tmp_path, **MODEL | {"num_iterations": 20})

    assert outcome.summary["step"] == 20
    assert "how the data of the checkpoint was encoded is unknown" in capfd.readouterr().err


def test_an_export_without_an_encoding_scores_with_a_warning(
    folder: Path, learned: Outcome, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = _export(learned, tmp_path / "export")
    document = json.loads((exported / "config.json").read_text())
    del document["encoding"]
    (exported / "config.json").write_text(json.dumps(document))

    code, result, error = _predict(capsys, exported, folder / "one")

    assert (code, result["auc"]) == (0, pytest.approx(learned.summary["auc"], abs=1e-6))
    assert "how the data that the model learned from was encoded is unknown" in error


def test_a_dataset_of_schema_version_1_trains_with_an_unknown_encoding(
    folder: Path, *, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dataset = Path(shutil.copytree(folder / "one", tmp_path / "one"))
    make_version_1(dataset)

    outcome = run_here(dataset, tmp_path / "run", **MODEL | {"num_iterations": 10})

    assert outcome.summary["step"] == 10
    assert "its schema version 1 keeps no vocabulary" in capfd.readouterr().err
    exported = _export(outcome, tmp_path / "export")
    assert json.loads((exported / "config.json").read_text())["encoding"] is None
    again = run_here(folder / "one", tmp_path / "run", **MODEL | {"num_iterations": 20})
    assert again.summary["step"] == 20  # the same rows, with a vocabulary
    assert json.loads((_export(again, tmp_path / "later") / "config.json").read_text())["encoding"]


def test_the_encoding_of_raw_text_depends_on_its_table_sizes(
    folder: Path, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = run_here(folder / "one.tsv", tmp_path / "run", **MODEL, num_embeddings=100, num_iterations=10)
    model = raw.directory / "checkpoints"

    assert _predict(capsys, model, folder / "two.tsv")[::2] == (0, "")
    code, _, error = _predict(capsys, model, folder / "one")
    assert code == 65
    assert "(vocabulary), the model's is" in error
    assert "(modulo)" in error


@pytest.mark.parametrize("verify", [True, False])
def test_the_trainer_refuses_a_damaged_vocabulary(folder: Path, tmp_path: Path, *, verify: bool) -> None:
    dataset = Path(shutil.copytree(folder / "one", tmp_path / "one"))
    path = dataset / "vocabulary/C3.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    kind = DatasetError if verify else CheckpointError  # it would be copied beside the checkpoints
    with pytest.raises(kind, match=r"C3.npy: its (crc32|sha256) is"):
        run_here(dataset, tmp_path / "run", **MODEL, verify_data=verify)
    path.unlink()
    with pytest.raises(DatasetError, match=r"C3.npy: missing, though dataset.json names it"):
        run_here(dataset, tmp_path / "run", **MODEL, verify_data=verify)

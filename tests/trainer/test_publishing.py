"""Published versions equal exports byte for byte, and deltas are made from the checkpoint's layers alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainer.support_publishing import (
    SIZES,
    applied,
    command,
    exported,
    publishing,
    steps_of,
    write_zipf,
)
from tests.trainer.support_runs import run_here
from trainer.commands import export, predict, publish
from trainer.publishing import publisher as publisher_module
from trainer.tables.tables import quantize_rows

PRECISIONS = ("fp32", "fp16", "int8", "int4")
RUN: dict[str, Any] = {"checkpoint_interval": 10, "keep_checkpoints": 50, "checkpoint_async": False}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_zipf(tmp_path_factory.mktemp("zipf") / "data")


@pytest.fixture(scope="module")
def checkpoints(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve checkpoints of a run, of which the tenth merged a chain of eight."""
    run = tmp_path_factory.mktemp("run")
    assert run_here(data, run, **RUN).code == 0
    assert len(steps_of(run / "checkpoints")) == 12
    return run / "checkpoints"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_base_and_its_deltas_equal_the_export_of_the_checkpoint(
    checkpoints: Path, tmp_path: Path, precision: str
) -> None:
    reports = [
        publishing(checkpoints, tmp_path / "out", "--step", step, "--precision", precision)
        for step in steps_of(checkpoints)
    ]
    assert [each["full"] for each in reports] == [True] + [False] * 11
    assert [each["delta"] for each in reports] == [False] + [True] * 11
    merged = [each["found_by"] for each in reports].index("layers, compared", 2)
    for version in (1, 2, merged, merged + 1, 12):
        step = steps_of(checkpoints)[version - 1]
        expected = exported(checkpoints, tmp_path / f"export-{version}", precision, step)
        assert applied(tmp_path / "out", tmp_path / f"applied-{version}", version) == expected
    for report in reports[2:]:
        if report["found_by"] == "layers":
            assert report["rows_compared"] == 0
            assert report["bytes"] < reports[0]["bytes"] / 4


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam"])
def test_every_optimizer_of_tables(data: Path, tmp_path: Path, optimizer: str) -> None:
    settings = {"table_optimizer": optimizer, "num_iterations": 60}
    assert run_here(data, tmp_path / "run", **RUN, **settings).code == 0
    found = tmp_path / "run" / "checkpoints"
    for step in steps_of(found):
        publishing(found, tmp_path / "out", "--step", step, "--precision", "fp16")
    expected = exported(found, tmp_path / "export", "fp16")
    assert applied(tmp_path / "out", tmp_path / "applied") == expected


def test_quantised_checkpoints_are_read_as_the_export_reads_them(data: Path, tmp_path: Path) -> None:
    settings = {"checkpoint_quantization": "int8", "checkpoint_mode": "incremental"}
    assert run_here(data, tmp_path / "run", **RUN, **settings).code == 0
    found = tmp_path / "run" / "checkpoints"
    for step in steps_of(found)[::2]:
        publishing(found, tmp_path / "out", "--step", step)
    expected = exported(found, tmp_path / "export", "fp32", steps_of(found)[-2])
    assert applied(tmp_path / "out", tmp_path / "applied") == expected


def test_a_delta_reads_the_layers_since_the_version_before_and_nothing_else(
    checkpoints: Path, tmp_path: Path
) -> None:
    copy, steps = tmp_path / "checkpoints", steps_of(checkpoints)
    shutil.copytree(checkpoints, copy)
    before, step = steps[-2], steps[-1]
    publishing(copy, tmp_path / "out", "--step", before)
    (newest,) = copy.glob(f"step-{step:08d}/rank-*.bin")
    for path in copy.glob("step-*/rank-*"):
        if path.parent != newest.parent:
            path.unlink()  # all layers but the newest
    report = publishing(copy, tmp_path / "out", "--step", step)
    assert (report["delta"], report["found_by"], report["rows_compared"]) == (True, "layers", 0)
    assert 0 < report["checkpoint_bytes"] < newest.stat().st_size
    assert report["rows"] < sum(SIZES.values()) / 10
    expected = exported(checkpoints, tmp_path / "export", "fp32", step)
    assert applied(tmp_path / "out", tmp_path / "applied") == expected


def test_a_merged_chain_whose_layers_are_gone_is_compared(checkpoints: Path, tmp_path: Path) -> None:
    reports = [publishing(checkpoints, tmp_path / "all", "--step", step) for step in steps_of(checkpoints)]
    merged = [each["found_by"] for each in reports].index("layers, compared", 2)
    before, step = (steps_of(checkpoints)[place] for place in (merged - 1, merged))
    copy = tmp_path / "checkpoints"
    shutil.copytree(checkpoints, copy)
    publishing(copy, tmp_path / "out", "--step", before)
    for path in copy.glob("step-*"):
        if int(path.name.removeprefix("step-")) < step:
            shutil.rmtree(path)
    report = publishing(copy, tmp_path / "out", "--step", step)
    assert (report["found_by"], report["rows_compared"]) == ("compared", sum(SIZES.values()))
    assert report["rows"] == reports[merged]["rows"]
    expected = exported(checkpoints, tmp_path / "export", "fp32", step)
    assert applied(tmp_path / "out", tmp_path / "applied") == expected


def test_an_earlier_checkpoint_and_another_run_can_follow(
    data: Path, checkpoints: Path, tmp_path: Path
) -> None:
    steps = steps_of(checkpoints)
    publishing(checkpoints, tmp_path / "out", "--step", steps[5])
    back = publishing(checkpoints, tmp_path / "out", "--step", steps[4])
    assert (back["version"], back["delta"], back["found_by"]) == ("00000002", True, "compared")
    expected = exported(checkpoints, tmp_path / "export-1", "fp32", steps[4])
    assert applied(tmp_path / "out", tmp_path / "applied-1") == expected
    run_here(data, tmp_path / "run", **RUN, seed=5, num_iterations=20)
    other = publishing(tmp_path / "run" / "checkpoints", tmp_path / "out")
    assert (other["full"], other["delta"]) == (True, False)  # every row differs
    expected = exported(tmp_path / "run" / "checkpoints", tmp_path / "export-2", "fp32")
    assert applied(tmp_path / "out", tmp_path / "applied-2") == expected


def test_grown_tables_are_a_delta(data: Path, tmp_path: Path) -> None:
    grown = write_zipf(tmp_path / "data", sizes={**SIZES, "C1": 4_100, "C4": 60}, seed=1)
    still = {"learning_rate": 1e-30, "num_iterations": 1, "init_match": "number"}
    run_here(data, tmp_path / "one", **RUN, num_iterations=20)
    run_here(grown, tmp_path / "two", **still, init_from=str(tmp_path / "one" / "checkpoints"))
    first, second = (tmp_path / name / "checkpoints" for name in ("one", "two"))
    publishing(first, tmp_path / "out")
    report = publishing(second, tmp_path / "out")
    assert (report["delta"], report["full"], report["found_by"]) == (True, False, "compared")
    assert report["rows"] == 100 + 60
    expected = exported(second, tmp_path / "export", "fp32")
    assert applied(tmp_path / "out", tmp_path / "applied") == expected
    publishing(first, tmp_path / "out")  # and shrink again
    assert applied(tmp_path / "out", tmp_path / "back") == exported(first, tmp_path / "first", "fp32")


def test_a_base_is_an_export(checkpoints: Path, data: Path, tmp_path: Path) -> None:
    publishing(checkpoints, tmp_path / "out", "--precision", "int8")
    (base,) = (tmp_path / "out" / "data").glob("*/export")
    words = ["--dataset_path", data]
    code, printed, _ = command(predict.main, "--checkpoint", base, *words)
    assert code == 0
    direct = command(predict.main, "--checkpoint", checkpoints, "--quantize", "int8", *words)
    assert json.loads(printed) == json.loads(direct[1])


def test_the_base_is_renewed_beside_a_delta_when_the_deltas_are_large(
    checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "MOST_DELTAS", 3)
    reports = [publishing(checkpoints, tmp_path / "out", "--step", step) for step in steps_of(checkpoints)]
    assert [each["full"] for each in reports] == [number % 4 == 0 for number in range(12)]
    assert all(each["delta"] for each in reports[1:])
    expected = exported(checkpoints, tmp_path / "export", "fp32")
    assert applied(tmp_path / "out", tmp_path / "applied") == expected


def test_old_versions_are_removed_only_when_asked_and_never_what_others_need(
    checkpoints: Path, tmp_path: Path
) -> None:
    out, steps = tmp_path / "out", steps_of(checkpoints)
    for step in steps[:5]:
        publishing(checkpoints, out, "--step", step)
    assert len(list(out.glob("versions/*"))) == 5
    publishing(checkpoints, out, "--step", steps[5], "--keep", 2)
    assert len(list(out.glob("versions/*"))) == 6  # the newest two are made from all of them
    publishing(checkpoints, out, "--step", steps[6], "--full", "--keep", 1)
    assert [path.name for path in out.glob("versions/*")] == ["00000007.jsonl"]
    assert len(list((out / "data").iterdir())) == 1
    expected = exported(checkpoints, tmp_path / "export", "fp32", steps[6])
    assert applied(out, tmp_path / "applied") == expected


def test_the_same_checkpoint_is_published_once(checkpoints: Path, tmp_path: Path) -> None:
    publishing(checkpoints, tmp_path / "out")
    again = publishing(checkpoints, tmp_path / "out")
    assert (again["is_new"], again["version"]) == (False, "00000001")
    assert len(list(tmp_path.glob("out/versions/*"))) == 1


def test_another_precision_needs_a_full_version(checkpoints: Path, tmp_path: Path) -> None:
    steps = steps_of(checkpoints)
    publishing(checkpoints, tmp_path / "out", "--step", steps[0], "--precision", "fp16")
    words = ["--checkpoint", checkpoints, "--out", tmp_path / "out", "--precision", "int8"]
    code, _, problem = command(publish.main, *words)
    assert code == 64
    assert "has fp16 since version 00000001" in problem
    code, printed, _ = command(publish.main, *words, "--full")
    assert (code, json.loads(printed)["delta"]) == (0, False)
    assert applied(tmp_path / "out", tmp_path / "applied") == exported(checkpoints, tmp_path / "x", "int8")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--step", "1"], 1, "has no checkpoint of step 1; it has 10, 20"),
        (["--checkpoint", "nowhere"], 1, "holds no committed checkpoint"),
        (["--out", "ftp://there"], 64, "the scheme 'ftp' is not supported"),
        (["--out", "s3://"], 64, "names no bucket"),
        (["--keep", "0"], 64, "must be at least 1"),
        (["--follow", "nan"], 64, "must be seconds between"),
        (["--follow", "5", "--step", "10"], 64, "leave one out"),
        (["--precision", "fp8"], 64, "invalid choice"),
    ],
)
def test_wrong_words_are_refused_with_the_reason(
    checkpoints: Path, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    given: dict[str, object] = {"--checkpoint": checkpoints, "--out": tmp_path / "out"}
    given |= dict(zip(words[::2], words[1::2], strict=True))
    found = command(publish.main, *(word for pair in given.items() for word in pair))
    assert (found[0], found[1]) == (code, "")
    assert message in found[2]


def test_a_damaged_newest_checkpoint_is_passed_over(checkpoints: Path, tmp_path: Path) -> None:
    copy, steps = tmp_path / "checkpoints", steps_of(checkpoints)
    shutil.copytree(checkpoints, copy)
    publishing(copy, tmp_path / "out", "--step", steps[8])
    (newest,) = copy.glob(f"step-{steps[-1]:08d}/rank-*.bin")
    content = bytearray(newest.read_bytes())
    content[-100] ^= 1
    content[100] ^= 1
    newest.write_bytes(content)
    assert publishing(copy, tmp_path / "out")["step"] == steps[-2]
    code, _, problem = command(
        publish.main, "--checkpoint", copy, "--out", tmp_path / "out", "--step", steps[-1]
    )
    assert code == 1
    assert "have changed; publish another checkpoint, with --step" in problem


def test_fp16_is_a_kind_of_export_that_predict_scores(checkpoints: Path, data: Path, tmp_path: Path) -> None:
    words = ["--checkpoint", checkpoints, "--quantize", "fp16"]
    assert command(export.main, *words, "--out", tmp_path / "model")[0] == 0
    assert np.load(tmp_path / "model" / "tables" / "C1.npy").dtype == np.float16
    metrics = [
        json.loads(command(predict.main, *each, "--dataset_path", data)[1])
        for each in (words, ["--checkpoint", tmp_path / "model"], words[:2])
    ]
    assert metrics[0] == metrics[1]
    assert metrics[0]["auc"] == pytest.approx(metrics[2]["auc"], abs=1e-3)
    assert metrics[0]["quantization"] == "fp16"


def test_values_that_16_bits_cannot_hold_are_refused() -> None:
    rows = torch.tensor([[1.0, float("inf"), float("nan")]])
    assert torch.equal(quantize_rows(rows[:, :2], "fp16"), rows[:, :2].half())
    with pytest.raises(Exception, match="16-bit floats end at 65504"):
        quantize_rows(torch.tensor([[1.0, -70_000.0]]), "fp16")

"""The constants of a machine are found from measured steps, and give time and memory of other models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cloudrec.app.planning.calibration import (
    NAME,
    VERSION,
    calibration_of,
    fit_quality,
    fitted,
    measured_work,
)
from cloudrec.cli.main import run
from cloudrec.planning.fit.cpu import (
    CpuRates,
    MeasuredStep,
    amounts,
    cpu_memory,
    cpu_step,
    fit_rates,
    typical,
)
from trainer.commands.calibrate import MODELS

CACHE = 32 << 20
CONSTANTS = {
    "fixed": 0.004, "tables": 0.06, "products": 0.011, "activations": 0.5, "pairs": 0.2, "ids": 0.05,
    "near_rows": 0.3, "far_rows": 0.9, "samples": 1.7, "parameters": 0.7, "exchange": 0.0,
}  # fmt: skip


def _model(number: int) -> dict[str, object]:
    each = MODELS[number]
    return {name: getattr(each, name) for name in each.__dataclass_fields__}


def _measured(ranks: int) -> dict[str, object]:
    rates = CpuRates(ranks=ranks, cache_bytes=CACHE, constants=CONSTANTS, misfit=0.0)
    models = []
    for number in range(len(MODELS)):
        seconds = cpu_step(measured_work(_model(number)), rates).seconds
        models.append(
            {**_model(number), "seconds": [seconds, 0.99 * seconds, 1.01 * seconds], "rss_bytes": 0}
        )
    return {
        "ranks": ranks, "cores": 2, "cache_bytes": CACHE, "baseline_bytes": 240 << 20, "models": models,
    }  # fmt: skip


def test_constants_that_made_the_steps_are_found_again() -> None:
    found = fitted(_measured(1))
    assert found.misfit < 0.01
    other = replace(measured_work(_model(2)), batch=3000, table_rows=[70_000] * 26)
    made = CpuRates(ranks=1, cache_bytes=CACHE, constants=CONSTANTS, misfit=0.0)
    assert cpu_step(other, found).seconds == pytest.approx(cpu_step(other, made).seconds, rel=0.05)


def test_a_step_counts_as_its_mean_without_a_long_wait() -> None:
    assert typical([1.0, 1.0, 1.6]) == pytest.approx(1.2)
    assert typical([1.0, 1.0, 1.0, 90.0]) == pytest.approx(1.5)


def test_a_bad_fit_is_reported_with_a_remedy() -> None:
    good = fitted(_measured(1))
    assert fit_quality({1: good}) == "the constants fit the timed steps within 0%"
    disturbed = _measured(2)
    models = disturbed["models"]
    assert isinstance(models, list)
    models[3]["seconds"] = [9 * each for each in models[3]["seconds"]]
    text = fit_quality({1: good, 2: fitted(disturbed)})
    assert "did something else meanwhile, run `cloudrec plan --calibrate` again" in text


def test_no_constant_is_negative_and_each_part_counts_once() -> None:
    works = [measured_work(_model(number)) for number in range(len(MODELS))]
    steps = [MeasuredStep(work=each, seconds=[0.01]) for each in works]  # no model of parts can say so
    found = fit_rates(steps, 1, CACHE)
    assert min(found.constants.values()) >= 0
    twice = replace(works[1], batch=2 * works[1].rank_batch(1))
    one, two = amounts(works[1], 1, CACHE), amounts(twice, 1, CACHE)
    assert {name for name in one if two[name] == pytest.approx(2 * one[name]) and one[name]} == {
        "products", "activations", "pairs", "ids", "near_rows", "samples",
    }  # fmt: skip


def test_pairs_cost_the_vectors_that_they_read_and_a_row_out_of_caches_has_a_line_of_state() -> None:
    dot, crossed = (measured_work(_model(number)) for number in (2, 8))  # 26 vectors of 64, and a DCN
    assert amounts(dot, 1, CACHE)["pairs"] == pytest.approx(dot.rank_batch(1) * 27 * 64 * 4 / 1e9)
    assert amounts(crossed, 1, CACHE)["pairs"] == 0
    assert amounts(dot, 1, 0)["far_rows"] == pytest.approx(dot.rank_batch(1) * 26 * (64 * 4 + 64) / 1e9)


def test_larger_tables_leave_the_cache_and_need_more_memory() -> None:
    small, large = (replace(measured_work(_model(2)), table_rows=[rows] * 26) for rows in (100, 10**6))
    assert amounts(small, 1, CACHE)["far_rows"] == 0
    assert 0 < amounts(large, 1, CACHE)["far_rows"] < amounts(large, 1, 0)["far_rows"]
    needs = [
        cpu_memory(large, ranks=ranks, baseline_bytes=0, memory_bytes=16 << 30).tables for ranks in (1, 2)
    ]
    assert needs[0] == pytest.approx(2 * needs[1])


def test_a_measured_machine_is_in_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path))
    found = calibration_of([_measured(1), _measured(2)], "2026-11-27")
    record = {
        "version": VERSION, "as_of": found.as_of, "memory_bytes": 16 << 30, "measured": found.measured,
        "rates": [vars(each) for each in found.rates.values()],
    }  # fmt: skip
    (tmp_path / NAME).write_text(json.dumps(record))
    words = ["plan", "--provider", "local", "--samples", "1000000", "-o", "json", "--", "--num_embeddings"]
    assert run([*words, "1000"]) == 0
    offers = json.loads(capsys.readouterr().out)["offers"]
    assert [(each["provider"], each["ranks"], each["fits"]) for each in offers] == [
        ("local", 1, True), ("local", 2, True),
    ]  # fmt: skip
    assert {each["basis"] for each in offers} == {"measured on 2026-11-27"}
    assert run([word for word in [*words, "1000"] if word not in {"-o", "json"}]) == 0
    shown = capsys.readouterr().out
    assert "No cloud is in this plan." in shown
    assert "This machine, 2 ranks: " in shown
    assert run([*words, "9000000"]) == 0
    offers = json.loads(capsys.readouterr().out)["offers"]
    assert all("each rank needs" in each["reason"] for each in offers)


@pytest.mark.parametrize(
    "text", ["{", '{"version": 1}', '{"version": 9}', f'{{"version": {VERSION}, "rates": 3}}']
)
def test_a_damaged_record_is_an_error_with_its_remedy(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path))
    (tmp_path / NAME).write_text(text)
    assert run(["plan", "--provider", "local", "--samples", "9", "--", "--num_embeddings", "10"]) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"measured": []}, "not of the same numbers of ranks"),
        ({"rates": []}, "not of the same numbers of ranks"),
        ({"memory_bytes": 10**60}, "which is not from 1 to"),
        ({"as_of": "\x1b[2J"}, "the date"),
    ],
)
def test_a_record_with_impossible_values_is_an_error_with_its_remedy(
    change: dict[str, object],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path))
    record = {
        "version": VERSION, "as_of": "2026-11-27", "memory_bytes": 16 << 30, "measured": [_measured(1)],
        "rates": [vars(fitted(_measured(1)))],
    }  # fmt: skip
    (tmp_path / NAME).write_text(json.dumps({**record, **change}))
    assert run(["plan", "--provider", "local", "--samples", "9", "--", "--num_embeddings", "10"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "run `cloudrec plan --calibrate` again" in error

"""The text format, as prometheus_client's parser and promtool's rules read it, and the metrics of a run."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cloudrec.errors import PreflightError
from cloudrec.keeper.notices import gauges
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.observe.prometheus import run_metrics
from cloudrec.observe.prometheus.run_metrics import RunGauges
from cloudrec.observe.prometheus.server import LOOPBACK, MetricsServer
from cloudrec.observe.prometheus.text import Exposition, Metric

GAUGE = Metric(name="a_seconds", kind="gauge", text='with \\ and "quotes"\nand lines')


def _samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_odd_values_and_labels_survive_the_format() -> None:
    page = Exposition(labels={"run": "r"})
    odd = 'a\\b"c\nd{}=,'
    for name, value in (("a", 0.1), ("b", math.nan), ("c", math.inf), ("d", -math.inf), (odd, 2.0**60)):
        page.add(GAUGE, value, name=name)
    page.add(GAUGE, None, name="unknown")
    found = _samples(page.text())
    values = {labels[0][1]: value for (_, labels), value in found.items()}
    assert math.isnan(values.pop("b"))
    assert values == {"a": 0.1, "c": math.inf, "d": -math.inf, odd: 2.0**60}
    assert page.text().count("# TYPE") == page.text().count("# HELP") == 1


@pytest.mark.parametrize(("name", "kind"), [("a-b", "gauge"), ("a_total", "gauge"), ("a", "counter")])
def test_names_follow_the_conventions(name: str, kind: str) -> None:
    with pytest.raises(ValueError, match="is no name of a"):
        Metric(name=name, kind=kind, text="")  # type: ignore[arg-type]


def test_every_metric_has_its_own_name_and_a_base_unit() -> None:
    names = [metric.name for metric in (*run_metrics.METRICS, *gauges.METRICS)]
    assert len(set(names)) == len(names)
    # prometheus.io/docs/practices/naming: seconds and bytes, never milliseconds, minutes or gigabytes
    assert not [name for name in names if name.endswith(("_ms", "_s", "_minutes", "_hours", "_gb", "_mb"))]
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    assert [name for name in names if f"`{name}`" not in page] == []


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    (tmp_path / "r").mkdir()
    return RunFolder(path=tmp_path / "r")


def _write(run: RunFolder, *records: dict[str, object]) -> None:
    with run.metrics_file.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def test_a_run_has_its_figures_and_only_those_that_are_known(run: RunFolder) -> None:
    page = RunGauges(run, labels={"run": "r"})
    assert _samples(page.text()) == {
        ("cloudrec_run_restarts_total", (("run", "r"),)): 0.0,
        ("cloudrec_run_preemption_notices_total", (("run", "r"),)): 0.0,
    }
    parts = {"productive_s": 8.5, "lost_s": 1.5}
    _write(
        run,
        {"kind": "start", "step": 0, "total_steps": 100, "attempt": 1},
        {
            "kind": "train",
            "step": 10,
            "loss": float("nan"),
            "samples": 640,
            "samples_per_s": 64.0,
            "time": 7.0,
        },
        {"kind": "checkpoint", "step": 10, "bytes": 100, "seconds": 0.25, "content": "full", "time": 8.0},
        {
            "kind": "checkpoint",
            "step": 20,
            "bytes": 50,
            "seconds": 0.5,
            "content": "differential",
            "time": 9.0,
        },
        {"kind": "train", "step": 21, "loss": 0.5, "goodput": 0.85, "goodput_parts": parts, "time": 10.0},
        {"kind": "eval", "step": 21, "auc": 0.7, "tasks": {"click": {"auc": 0.75}}, "time": 11.0},
    )
    run.ledger.append("restarting", launch=1, attempt=1)
    for rank in (0, 1):
        run.ledger.append(
            "rank_ended", launch=1, attempt=0, rank=rank, exit_code=75, end={"machine_leaves": True}
        )
    found = {
        (
            name.removeprefix("cloudrec_run_"),
            *(f"{key}={value}" for key, value in labels if key != "run"),
        ): number
        for (name, labels), number in _samples(page.text()).items()
    }
    assert found == {
        ("step",): 21.0,
        ("planned_steps",): 100.0,
        ("attempt",): 1.0,
        ("record_timestamp_seconds",): 11.0,
        ("loss",): 0.5,
        ("goodput_ratio",): 0.85,
        ("time_seconds_total", "part=productive"): 8.5,
        ("time_seconds_total", "part=lost"): 1.5,
        ("eval_auc",): 0.7,
        ("eval_auc", "task=click"): 0.75,
        ("checkpoint_step",): 20.0,
        ("checkpoint_timestamp_seconds",): 9.0,
        ("checkpoint_size_bytes",): 50.0,
        ("checkpoint_bytes_total",): 150.0,
        ("checkpoint_stall_seconds",): 0.5,
        ("checkpoint_stall_seconds_total",): 0.75,
        ("checkpoints_total", "content=full"): 1.0,
        ("checkpoints_total", "content=differential"): 1.0,
        ("restarts_total",): 1.0,
        ("preemption_notices_total",): 1.0,
    }


def test_a_script_of_a_user_has_its_numbers_by_name(run: RunFolder) -> None:
    _write(run, {"step": 3, "ndcg": 0.25, "note": "text"})
    for number in range(100):
        _write(run, {f"v{number}": number})
    found = _samples(RunGauges(run, labels={}).text())
    assert found[("cloudrec_run_value", (("name", "ndcg"),))] == 0.25
    assert len([name for name, _ in found if name == "cloudrec_run_value"]) == 50  # cardinality is bounded


def test_a_line_that_is_written_meanwhile_counts_once_it_is_whole(run: RunFolder) -> None:
    page = RunGauges(run, labels={})
    _write(run, {"kind": "train", "step": 1, "loss": 0.5})
    line = json.dumps({"kind": "train", "step": 2, "loss": 0.25}) + "\n"
    for part, step in ((line[:9], 1.0), (line[9:], 2.0)):
        with run.metrics_file.open("a") as file:
            file.write(part)
        assert _samples(page.text())[("cloudrec_run_step", ())] == step
    run.metrics_file.unlink()  # another pod's file takes its place
    _write(run, {"kind": "train", "step": 7})
    assert _samples(page.text())[("cloudrec_run_step", ())] == 7.0


def test_the_endpoint_has_one_page_on_loopback() -> None:
    server = MetricsServer(0, address=LOOPBACK, page=lambda: "a 1\n")
    server.start()
    try:
        base = f"http://127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{base}/metrics", timeout=10) as answer:  # noqa: S310 - loopback
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert answer.read() == b"a 1\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/etc/passwd", timeout=10)  # noqa: S310 - as above
        with pytest.raises(PreflightError, match=f"port {server.port}"):
            MetricsServer(server.port, address=LOOPBACK, page=str)
    finally:
        server.close()

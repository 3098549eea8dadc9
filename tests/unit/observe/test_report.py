"""A report is one self-contained page in every state of the run."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.observe.page.charts import line_chart, safe_script, stacked_chart, ticks
from cloudrec.observe.page.curves import Curve, CurvesFile, Point
from cloudrec.observe.page.human import duration, percent, short, size, usd
from cloudrec.observe.page.report import render_report, write_report

if TYPE_CHECKING:
    from pathlib import Path

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Checks that every element is closed, and collects external references."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.words: list[str] = []
        self.paths = 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.paths += tag == "path"
        assert tag not in ("link", "iframe", "img"), f"<{tag}> may fetch something"
        self.references += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            return
        self.words.append(data)
        assert "url(" not in data
        assert "@import" not in data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def _run(tmp_path: Path, *events: tuple[str, dict[str, Any]], **spec: Any) -> RunFolder:
    run = create_run(tmp_path, RunSpec(name="one", trainer_config={"batch_size": 512}, **spec))
    for event, details in events:
        run.ledger.append(event, launch=1, **details)
    return run


def _train(run: RunFolder, steps: int, *, first: int = 1) -> None:
    with run.metrics_file.open("a") as file:
        for step in range(first, first + steps):
            record = {"kind": "train", "step": step, "loss": 0.7 / step, "samples_per_s": 1e4, "step_s": 0.02}
            file.write(json.dumps({**record, "data_wait_s": 0.001, "ckpt_stall_s": 0.0}) + "\n")
        file.write(json.dumps({"kind": "eval", "step": first + steps, "auc": 0.75}) + "\n")


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([("succeeded", {})], "SUCCEEDED"),
        ([("failed", {"cause": "rank 0 was killed by SIGKILL"})], "FAILED"),
        ([("interrupted", {"cause": "stopped on request"})], "INTERRUPTED"),
        ([("rank_ended", {"rank": 0, "attempt": 0, "exit_code": 1})], "FAILED"),
        ([], "FAILED"),
    ],
)
@pytest.mark.parametrize("steps", [0, 1, 50])
def test_every_state_gives_a_complete_page_without_external_references(
    tmp_path: Path, events: list[tuple[str, dict[str, Any]]], state: str, steps: int
) -> None:
    run = _run(tmp_path, ("submitted", {"launcher": "local"}), ("started", {"pid": 1}), *events)
    if steps:
        _train(run, steps)
    page = Page(render_report(run))
    assert page.references == []
    assert state in page.words
    assert page.paths == (6 if steps else 0)  # loss, AUC, throughput, and three parts of a step
    for event, details in events:
        assert event.replace("_", " ") in page.words
        assert details.get("cause", "") in page.text


def test_the_report_starts_with_the_summary_of_the_trainer(tmp_path: Path) -> None:
    run = _run(tmp_path, ("submitted", {}), ("started", {}), ("succeeded", {}), trainer_flags=("--seed", "1"))
    _train(run, 10)
    summary: dict[str, Any] = {
        "status": "finished",
        "auc": 0.7812,
        "ne": 0.9,
        "versions": {"torch": "2.13.0"},
    }
    summary["tasks"] = {"bought": {"auc": 0.6543, "logloss": None}, "<b>odd": {"auc": 0.5}, "damaged": 3}
    run.summary_file.write_text(json.dumps(summary))
    text = Page(render_report(run)).text
    for words in (
        "AUC 0.7812",
        "Normalized entropy 0.9",
        "AUC of bought 0.6543",
        "AUC of <b>odd 0.5",
        "versions.torch 2.13.0",
        "batch_size 512",
        "--seed 1",
    ):
        assert words in text


def test_text_from_logs_and_names_is_escaped(tmp_path: Path) -> None:
    run = _run(tmp_path, ("failed", {"cause": "<script>alert(1)</script>"}))
    run.summary_file.write_text(json.dumps({"status": "<img src=x onerror=alert(1)>"}))
    page = Page(render_report(run))
    assert "<script>alert(1)</script>" in page.text
    assert "<img src=x onerror=alert(1)>" in page.text


def test_the_page_of_a_long_run_is_small(tmp_path: Path) -> None:
    run = _run(tmp_path, ("submitted", {}))
    _train(run, 20_000)
    assert len(render_report(run)) < 200_000


def test_missing_numbers_leave_a_gap(tmp_path: Path) -> None:
    run = _run(tmp_path, ("submitted", {}))
    run.metrics_file.write_text('{"kind": "train", "step": 1, "loss": NaN, "step_s": Infinity}\n{"torn')
    assert Page(render_report(run)).paths == 0


def test_a_report_is_written_to_the_given_file(tmp_path: Path) -> None:
    run = _run(tmp_path / "runs")
    assert write_report(run, tmp_path / "one.html") == tmp_path / "one.html"
    assert Page((tmp_path / "one.html").read_text()).text.startswith("one · cloudrec")


def test_a_curve_is_downsampled_by_averaging_and_keeps_its_mean() -> None:
    curve = Curve(limit=100)
    for step in range(10_000):
        curve.add(Point(step, 0, 0, step % 2))
    (line,) = curve.lines
    assert len(line) <= 101
    assert math.isclose(sum(point.value for point in line) / len(line), 0.5, abs_tol=0.01)
    assert line[0].step >= 0
    assert line[-1].step <= 9_999


def test_decreasing_steps_start_a_new_line() -> None:
    curve = Curve()
    for step in (1, 2, 3, 2, 3, 4):
        curve.add(Point(step, 0, 0, 0.0))
    assert [[point.step for point in line] for line in curve.lines] == [[1, 2, 3], [2, 3, 4]]


def test_a_run_that_resumes_again_and_again_has_bounded_curves() -> None:
    curve = Curve(limit=100)
    for _ in range(5_000):
        curve.add(Point(1, 0, 0, 0.5))
    assert sum(map(len, curve.lines)) <= 101


def test_only_what_was_added_to_the_metrics_is_read_again(tmp_path: Path) -> None:
    file = CurvesFile(path=tmp_path / "metrics.jsonl")
    assert file.read().lines("loss") == []
    record = '{"kind": "train", "step": %d, "loss": 0.5, "time": %d}\n'
    file.path.write_text(record % (1, 100) + record % (2, 110) + '{"kind": "tra')
    assert [point.step for point in file.read().lines("loss")[0]] == [1, 2]
    with file.path.open("a") as more:
        more.write('in", "step": 3, "loss": 0.25, "time": 130}\nno JSON\n')
    (line,) = file.read().lines("loss")
    assert [(point.step, point.time, point.value) for point in line] == [
        (1, 0, 0.5),
        (2, 10, 0.5),
        (3, 30, 0.25),
    ]
    file.path.unlink()
    file.path.write_text(record % (7, 200))
    assert [point.step for point in file.read().lines("loss")[0]] == [7]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 10.0, [0, 2, 4, 6, 8, 10]),
        (0.68, 0.81, [0.7, 0.725, 0.75, 0.775, 0.8]),
        (-1.0, 1.0, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_an_axis_has_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_a_short_axis_of_steps_has_whole_numbers() -> None:
    assert ticks(0, 2, is_whole=True) == [0, 1, 2]


def _line(*values: float) -> list[list[Point]]:
    return [[Point(step, step, step, value) for step, value in enumerate(values)]]


def test_bands_are_stacked_and_end_at_their_sum() -> None:
    chart = stacked_chart("k", "t", [("a", _line(1, 1)), ("b", _line(3, 1))], unit="ms")
    assert chart is not None
    assert [curve.last for curve in chart.curves] == ["1", "1"]
    lower, upper = ([float(y) for _, y in _points(curve.paths[0])] for curve in chart.curves)
    assert upper[2:] == lower[:2][::-1]  # the upper band starts at the top of the lower one
    assert chart.bottom - upper[0] == pytest.approx(4 * (chart.bottom - lower[0]), abs=0.5)


def test_a_chart_has_its_values_as_a_table_and_as_data() -> None:
    chart = line_chart("k", "t", [("none", []), ("one", _line(0.5, 0.25)), ("two", _line(1.5))], unit="s")
    assert chart is not None
    assert chart.headers == ("Step", "Time", "one, s", "two, s")
    assert chart.rows == (("0", "0.0 s", "0.5", "1.5"), ("1", "1.0 s", "0.25", "1.5"))
    assert [curve.tone for curve in chart.curves] == [
        2,
        3,
    ]  # a run keeps its colour where another has no curve
    assert json.loads(chart.data)["series"][0]["lines"] == [[[0, 0, 0, 0.5], [1, 1, 1, 0.25]]]


def test_data_of_a_chart_cannot_end_its_element() -> None:
    text = safe_script({"name": "</script><script>alert(1)</script>&<!--"})
    assert "<" not in text
    assert json.loads(text) == {"name": "</script><script>alert(1)</script>&<!--"}


def _points(path: str) -> list[list[str]]:
    return [point.split(" ") for point in path.strip("MZ").split("L")]


def test_an_empty_series_has_no_chart() -> None:
    assert line_chart("k", "t", [("a", [[]])]) is None
    assert stacked_chart("k", "t", [("a", [])], unit="") is None


@pytest.mark.parametrize("values", [[-7584577216.0], [-1.0, -2.0], [5e-324], [0.0], [1e300, -1e300]])
def test_a_chart_from_zero_is_drawn_for_any_value(values: list[float]) -> None:
    chart = line_chart("k", "t", [("a", _line(*values))], from_zero=True)
    assert chart is not None
    assert chart.y_ticks


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.74312, "0.7431"), (12345, "12.3k"), (2.5e6, "2.5M"), (3.2e-5, "3.2e-05"), (-0.5, "-0.5")],
)
def test_numbers_are_formatted_briefly(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(4.25, "4.2 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")])
def test_durations_are_formatted_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_unknown_is_shown_as_unknown_and_small_numbers_are_not_zero() -> None:
    assert usd(None) == "unknown"
    assert usd(0.004) == "$0.0040"
    assert usd(1234.5) == "$1,234.50"
    assert percent(0.9962) == "99.6 %"
    assert percent(0.76) == "76 %"
    assert size(9_386_432) == "9.39 MB"
    assert size(None) == percent(None) == short(None) == duration(None) == "\N{EN DASH}"

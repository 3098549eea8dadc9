"""A damaged run folder is shown with the reason and does not hide other runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudrec.cli.run_tables import goodput_line, runs_table
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.observe.page.report import render_report
from cloudrec.observe.runs import RunView, list_runs

HUGE = "9" * 400
DEEP = "[" * 100_000


def _run(runs: Path, name: str) -> RunFolder:
    run = create_run(runs, RunSpec(name=name))
    for event in ("submitted", "started", "succeeded"):
        run.ledger.append(event, launch=1)
    run.rank_log(0).write_text("a line\n")
    return run


def _spec(key: str, text: str) -> Callable[[RunFolder], None]:
    """Replace a key's value in spec.json."""

    def damage(run: RunFolder) -> None:
        document = json.loads(run.spec_file.read_text()) | {key: "HERE"}
        run.spec_file.write_text(json.dumps(document).replace('"HERE"', text))

    return damage


def _line(name: str, line: str) -> Callable[[RunFolder], None]:
    """Add a line to a file."""

    def damage(run: RunFolder) -> None:
        with (run.path / name).open("a") as file:
            file.write(f"{line}\n")

    return damage


def _odd(name: str, kind: str) -> Callable[[RunFolder], None]:
    """Replace a file by a folder, a pipe or an endless device."""

    def damage(run: RunFolder) -> None:
        path = run.path / name
        path.unlink(missing_ok=True)
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/full")

    return damage


def _shown(runs: Path) -> dict[str, RunView]:
    """All runs, as JSON and as text."""
    views = list_runs(runs)
    json.dumps([view.to_json() for view in views], allow_nan=False)
    runs_table(views)
    for view in views:
        goodput_line(view)
    return {view.name: view for view in views}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("environment", "null"),
        ("environment", '{"A": 1}'),
        ("trainer_config", "[]"),
        ("target", "1.5"),
        ("trainer_flags", "[1]"),
        ("trainer_flags", '"--a"'),
        ("trainer_command", "[null]"),
        ("nproc_per_node", HUGE),
        ("nodes", "1e400"),
        ("max_restarts", "true"),
        ("stop_grace_s", HUGE),
        ("hourly_usd", "Infinity"),
        ("hourly_usd", "NaN"),
        ("hourly_usd", '"much"'),
        ("launcher", "[]"),
        ("cluster", "{}"),
        ("versions", "[]"),
        ("storage", "7"),
        ("settings", DEEP),
    ],
)
def test_a_spec_with_an_invalid_value_is_shown_with_its_key_beside_other_runs(
    tmp_path: Path, key: str, value: str
) -> None:
    _run(tmp_path, "good")
    _spec(key, value)(_run(tmp_path, "odd"))
    views = _shown(tmp_path)
    assert views["good"].state is RunState.SUCCEEDED
    assert (views["odd"].cause or "").startswith("damaged: ")
    assert key in (views["odd"].cause or "") or "nested deeper" in (views["odd"].cause or "")


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
@pytest.mark.parametrize("name", ["spec.json", "metrics.jsonl", "events.jsonl"])
def test_special_files_are_never_read_and_are_named(tmp_path: Path, name: str, kind: str) -> None:
    _run(tmp_path, "good")
    _odd(name, kind)(_run(tmp_path, "odd"))
    views = _shown(tmp_path)
    assert views["good"].state is RunState.SUCCEEDED
    assert (views["odd"].cause or "").startswith("damaged: ")
    assert name in (views["odd"].cause or "")
    assert "a folder, a pipe or a device" in (views["odd"].cause or "")


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
@pytest.mark.parametrize("name", ["summary.json", "logs/rank-0.log", "logs/agent.log"])
def test_a_run_without_a_readable_summary_or_log_keeps_its_state(
    tmp_path: Path, name: str, kind: str
) -> None:
    odd = _run(tmp_path, "odd")
    _odd(name, kind)(odd)
    assert _shown(tmp_path)["odd"].state is RunState.SUCCEEDED
    assert "odd" in render_report(odd)


def test_a_run_with_unreadable_metrics_keeps_the_state_of_its_launcher(tmp_path: Path) -> None:
    _odd("metrics.jsonl", "folder")(_run(tmp_path, "odd"))
    assert _shown(tmp_path)["odd"].state is RunState.SUCCEEDED


@pytest.mark.parametrize(
    "line",
    [
        f'{{"kind": "train", "step": {HUGE}, "loss": {HUGE}, "samples_per_s": Infinity}}',
        f'{{"kind": "eval", "step": 1e308, "auc": -Infinity, "goodput": {HUGE}}}',
        '{"kind": "eval", "step": 1, "auc": NaN, "goodput": 1.0, "goodput_parts": {"a": NaN}}',
        f'{{"kind": "start", "total_steps": {HUGE}, "time": {HUGE}}}',
        '{"kind": "train", "step": 1, "goodput": 0.5, "goodput_parts": {"lost_s": 1e308, "other_s": 1e308}}',
        DEEP,
    ],
)
def test_metrics_that_are_not_numbers_are_unknown(tmp_path: Path, line: str) -> None:
    odd = _run(tmp_path, "odd")
    for name in ("metrics.jsonl", "summary.json"):
        _line(name, line)(odd)
    view = _shown(tmp_path)["odd"]
    assert view.state is RunState.SUCCEEDED
    assert (view.loss, view.auc, view.samples_per_s, view.total_steps) == (None, None, None, None)
    assert "odd" in render_report(odd)


@pytest.mark.parametrize(
    "line",
    [
        '{"time": Infinity, "event": "failed", "launch": 1}',
        '{"time": 1e400, "event": "failed", "launch": 1}',
        '{"time": 1e300, "event": "failed", "launch": 1}',
        '{"time": -1, "event": "failed", "launch": 1}',
        f'{{"time": {HUGE}, "event": "failed", "launch": 1}}',
        f'{{"time": 5, "event": "failed", "launch": {HUGE}}}',
        '{"time": 5, "event": "failed", "launch": Infinity}',
        '{"time": 5, "event": "failed", "launch": 1, "cause": NaN}',
        '{"time": 5, "event": "started", "launch": 1, "pid": "much"}',
        '{"time": 5, "event": "rank_ended", "launch": 1, "attempt": {}}',
        DEEP,
    ],
)
def test_an_invalid_ledger_line_is_skipped(tmp_path: Path, line: str) -> None:
    odd = _run(tmp_path, "odd")
    before = odd.ledger.read()
    _line("events.jsonl", line)(odd)
    assert odd.ledger.read() == before
    assert _shown(tmp_path)["odd"].state is RunState.SUCCEEDED
    assert "odd" in render_report(odd)


def test_a_cause_of_another_type_is_shown_as_text(tmp_path: Path) -> None:
    odd = create_run(tmp_path, RunSpec(name="odd"))
    odd.ledger.append("failed", launch=1, cause={"a": [1]})
    assert _shown(tmp_path)["odd"].cause == "{'a': [1]}"


def test_a_lock_that_is_not_a_file_does_not_hide_other_runs(tmp_path: Path) -> None:
    _run(tmp_path, "good")
    _odd("lock", "folder")(_run(tmp_path, "odd"))
    views = _shown(tmp_path)
    assert views["good"].state is RunState.SUCCEEDED
    assert "lock" in (views["odd"].cause or "")

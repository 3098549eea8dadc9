from __future__ import annotations

import json
import os
import pty
import subprocess
from typing import TYPE_CHECKING, ClassVar

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cloudrec_contract.printed import StepLine
from tests.trainer.support_dataset import Rows, write_dataset, write_rows
from tests.trainer.support_runs import command, run_here
from trainer.__main__ import main
from trainer.base.arguments import make_config
from trainer.base.errors import ConfigError
from trainer.loop.setup import lacks_arithmetic
from trainer.report.profiling import GPU_STEPS, PhaseClock
from trainer.report.report import Reporter

if TYPE_CHECKING:
    from pathlib import Path

PHASES = ("forward_s", "backward_s", "update_s")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    write_dataset(path, train_rows=1000, test_rows=200, num_dense=3, num_sparse=4)
    return path


def test_every_metric_is_in_the_metrics_file_and_on_tensorboard(dataset: Path, tmp_path: Path) -> None:
    outcome = run_here(dataset, tmp_path, eval_interval=20)
    wanted = {"loss", "samples_per_s", "lr", "data_wait_s", "step_s", "memory_bytes", *PHASES}
    for line in outcome.lines("train"):
        assert wanted <= set(line)
        assert 0 < sum(line[name] for name in PHASES) <= line["step_s"]
        assert line["memory_bytes"] > 10e6
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert {f"train/{name}" for name in wanted} | {"eval/auc"} <= set(board.Tags()["scalars"])
    assert outcome.summary["paths"] == {"look_up": "direct", "pipeline": "plain", "dense": "eager"}


@pytest.mark.parametrize(("profile", "steps"), [("5:8", 3), ("38:99", 2), ("90:99", 0)])
def test_a_trace_has_the_requested_steps(dataset: Path, tmp_path: Path, profile: str, steps: int) -> None:
    assert run_here(dataset, tmp_path, profile=profile).code == 0
    path = tmp_path / "profile" / "rank-0.json"
    if not steps:
        assert not path.exists()
        return
    names = [event.get("name") for event in json.loads(path.read_text())["traceEvents"]]
    assert names.count("aten::binary_cross_entropy_with_logits") >= steps
    assert names.count("Optimizer.step#AdamW.step") == steps


@pytest.mark.parametrize("profile", ["5", "5:", "a:b", "8:8", "9:8", "-1:4"])
def test_invalid_ranges_are_refused(profile: str) -> None:
    with pytest.raises(ConfigError, match="profile"):
        make_config({"profile": profile})


class _Event:
    """A mark of a GPU's work, which it reaches when a test says so."""

    made: ClassVar[list[_Event]] = []

    def __init__(self) -> None:
        self.at = float("nan")
        self.reached = False
        self.made.append(self)

    def record(self) -> None:
        self.at = 2.0 * len(self.made) ** 2

    def query(self) -> bool:
        return self.reached

    def elapsed_time(self, end_event: _Event) -> float:
        assert self.reached
        assert end_event.reached
        return end_event.at - self.at


def test_phases_of_a_gpu_are_read_when_it_has_done_them() -> None:
    _Event.made.clear()
    clock = PhaseClock(torch.device("cuda"), _Event)
    for step in range(2 * GPU_STEPS):
        clock.begin(step)
        clock.end("forward")
        clock.end("backward")
    assert len(_Event.made) == 6  # of two steps
    assert clock.take() == {}
    for event in _Event.made[:3]:
        event.reached = True
    assert clock.take() == {"forward": 0.006, "backward": 0.010}
    for event in _Event.made:
        event.reached = True
    assert clock.take() == {"forward": 0.018, "backward": 0.022}
    assert clock.take() == {}


def test_a_terminal_shows_one_progress_line(dataset: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = command(dataset, tmp_path, log_interval=10, eval_interval=20)
    with subprocess.Popen(words, stdout=theirs, stderr=subprocess.STDOUT) as process:
        os.close(theirs)
        text = _read_all(ours)  # until the process ends
        assert process.wait(300) == 0
    lines = text.replace("\r\n", "\n").split("\n")
    (bars,) = (line for line in lines if "] 10/40  loss" in line)
    assert "] 20/40  loss" in bars
    assert "\r" in bars
    assert any("] 40/40  loss" in line for line in lines)


def _read_all(descriptor: int) -> str:
    parts = []
    try:
        while part := os.read(descriptor, 65536):
            parts.append(part)
    except OSError:  # a terminal whose other side is closed
        pass
    finally:
        os.close(descriptor)
    return b"".join(parts).decode()


def test_progress_is_printed_between_more_frequent_other_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("trainer.report.report.time.monotonic", lambda: now)
    with Reporter(tmp_path, active=True) as reporter:
        for second in range(12):
            now = float(second)
            reporter.say(f"step {second}: full checkpoint")
            reporter.advance(StepLine(step=second, steps=12, values="loss 0.5"))
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if "loss" in line] == ["step 5/12  loss 0.5", "step 10/12  loss 0.5"]
    assert len(printed) == 12 + 2


def test_other_ranks_print_only_their_own_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = Reporter(tmp_path, active=False)
    reporter.say("of the run")
    reporter.say("stopping: aws: this machine goes", everywhere=True)
    assert capsys.readouterr().out == "stopping: aws: this machine goes\n"


def test_a_warning_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write_dataset(tmp_path / "source", num_dense=3, num_sparse=4)
    rows["test"] = Rows(rows["test"].labels * 0, rows["test"].dense, rows["test"].sparse)
    write_rows(tmp_path / "data", rows, num_embeddings={f"C{i}": 50 for i in range(1, 5)}, shard_rows=500)
    words = command(tmp_path / "data", tmp_path / "run", eval_interval=10)[3:]
    assert main(words) == 0
    assert capsys.readouterr().err.count("0 of 200 samples are positive: AUC and normalized entropy") == 1


@pytest.mark.parametrize(
    ("precision", "instructions", "lacking"),
    [
        ("bf16", {"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, True),
        ("bf16", {"avx512_bf16": True}, False),
        ("bf16", {"amx_bf16": True}, False),
        ("bf16", {"cpu_name": "bf16", "avx2": True}, True),
        ("fp16", {"amx_bf16": True, "f16c": True}, True),
        ("fp16", {"avx512_fp16": True}, False),
        ("fp32", {}, False),
        ("tf32", {}, False),
    ],
)
def test_a_cpu_without_instructions_for_a_precision_is_detected(
    precision: str,
    instructions: dict[str, object],
    lacking: bool,  # noqa: FBT001 - a parameter of pytest's
) -> None:
    assert lacks_arithmetic(precision, instructions) is lacking


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_slow_arithmetic_is_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, precision: str
) -> None:
    write_dataset(tmp_path / "data", num_dense=3, num_sparse=4, train_rows=50)
    run_here(tmp_path / "data", tmp_path / "run", precision=precision)
    told = [text for text in caplog.messages if "for which this CPU has no instructions" in text]
    assert len(told) == lacks_arithmetic(precision, torch.cpu.get_capabilities())

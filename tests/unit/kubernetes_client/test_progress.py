"""What the keeper of a managed cluster reads from a run's lines."""

from __future__ import annotations

import pytest

from cloudrec.keeper.managed.progress import progress_of
from cloudrec.keeper.managed.record import KeptRun, ManagedRecord
from cloudrec_contract.printed import SavedLine, StepLine

LINES = (
    "8000 training rows, 3780 steps of 64",
    "step 1000/3780  loss 0.1931  2,594 samples/s",
    "[rank 0] step 1100: full checkpoint, 12.0 MB written in 1.52 s, training stopped for 31 ms",
    "[rank 0] step 1200/3780  loss 0.1800  2,594 samples/s",
)


def test_the_last_step_and_the_last_checkpoint_count() -> None:
    found = progress_of(LINES, pod="p")
    assert (found.step, found.steps, found.saved, found.save_s) == (1200, 3780, 1100, 1.52)


@pytest.mark.parametrize(
    "line",
    [
        "step 3/10 of epoch 2",
        "epoch 1 step 3/10  loss 1",
        "step 5/0  loss 1",
        "step " + "9" * 400,
        "",
        "\x00",
    ],
)
def test_lines_of_other_programs_are_no_progress(line: str) -> None:
    found = progress_of([line], pod="p")
    assert (found.step, found.steps, found.saved) == (None, None, None)


@pytest.mark.parametrize("mark", ["", "[rank 0] "])
def test_what_the_trainer_prints_is_parsed_as_it_was(mark: str) -> None:
    step = StepLine(step=12, steps=300, values="loss 0.1931  2,594 samples/s")
    saved = SavedLine(step=1100, content="differential", megabytes=0.4, write_s=1.52)
    for line in (step.text(), saved.text(), f"{saved.text()}, training stopped for 31 ms"):
        assert (StepLine.parse(mark + line) or SavedLine.parse(mark + line)) in (step, saved)


def test_what_is_not_in_a_checkpoint_counts_only_while_the_run_trains() -> None:
    kept = KeptRun(step=1200, steps=2000, saved=1100)
    assert kept.done == 1100 / 2000
    assert KeptRun(step=1200, steps=2000, saved=1100, worked_at=5.0).done == 1200 / 2000
    assert KeptRun().done is None


def test_a_record_keeps_what_was_measured() -> None:
    record = ManagedRecord(at=1.0, runs={"r": KeptRun(step=1, steps=2, save_s=3.0, restart_s=4.0)})
    assert ManagedRecord.of(record.to_json()) == record

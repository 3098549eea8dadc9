"""The keeper of a managed cluster reads a run's progress from the lines that the trainer prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cloudrec.keeper.managed.progress import progress_of

STEPS = 100_000  # more than it makes in the time limit


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_lines_of_a_training_are_understood(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-u", "-m", "trainer", "--dataset", "trainer.data.formats.synthetic:made_up"),
        *("--num_iterations", str(STEPS), "--log_interval", "20", "--batch_size", "64"),
        *("--checkpoint_interval", "50", "--checkpoint_async", "false", "--output_dir", str(tmp_path)),
        *("--num_embeddings", "50", "--embedding_dim", "8", "--dense_arch_layer_sizes", "8"),
        *("--over_arch_layer_sizes", "8,1"),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    ) as process:
        try:
            assert process.stdout is not None
            printed = list[str]()
            for line in process.stdout:
                printed.append(line.rstrip("\n"))
                found = progress_of(printed, pod="p")
                # A line of the progress is printed every few seconds, one of a checkpoint each time.
                if found.step is not None and found.saved is not None:
                    break
            else:
                pytest.fail("\n".join(printed))
        finally:
            process.kill()
    assert found.steps == STEPS
    assert 0 < found.step <= STEPS
    assert found.save_s is not None
    assert progress_of([f"[rank 0] {line}" for line in printed], pod="p") == found  # as the agent prints them

"""The keeper of a managed cluster reads a run's progress from the lines that the trainer prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cloudrec.keeper.managed.progress import progress_of

STEPS = 2000  # a line is printed every few seconds


@pytest.mark.slow
def test_the_lines_of_a_training_are_understood(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "trainer", "--dataset", "trainer.data.formats.synthetic:made_up"),
        *(
            "--num_iterations",
            str(STEPS),
            "--log_interval",
            "20",
            "--checkpoint_interval",
            "400",
            "--batch_size",
            "64",
        ),
        *("--num_embeddings", "50", "--embedding_dim", "8", "--dense_arch_layer_sizes", "8"),
        *("--over_arch_layer_sizes", "8,1", "--checkpoint_async", "false", "--output_dir", str(tmp_path)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = (done.stdout + done.stderr).splitlines()
    for prefix in ("", "[rank 0] "):  # as the agent passes them on
        found = progress_of([prefix + line for line in lines], pod="p")
        assert found.step is not None, done.stdout + done.stderr
        assert 0 < found.step <= STEPS == found.steps == found.saved
        assert found.save_s is not None

"""The thread that reads files ahead."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from cloudrec.data.prepare.sources import SourceFile, SourceProgress, read_chunks


def test_two_ctrl_c_during_a_slow_read_end_as_one_ctrl_c(tmp_path: Path) -> None:
    pipe = tmp_path / "slow.tsv"
    os.mkfifo(pipe)
    unblocking = os.open(pipe, os.O_RDWR)  # so that opening it does not wait, and reading it does
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
        with pytest.raises(KeyboardInterrupt):
            next(read_chunks(SourceProgress(SourceFile(pipe, 1, None)), first_row=0))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        os.write(unblocking, b"\n")
        os.close(unblocking)
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join(300)
            assert not thread.is_alive()

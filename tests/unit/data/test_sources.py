"""Files as they are read, by a thread ahead of whoever uses them."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from cloudrec.data.sources import Reading, Source, read_chunks


def test_ctrl_c_twice_while_a_slow_file_is_read_ends_as_ctrl_c_and_nothing_else(tmp_path: Path) -> None:
    pipe = tmp_path / "slow.tsv"
    os.mkfifo(pipe)
    unblocking = os.open(pipe, os.O_RDWR)  # so that opening it does not wait, and reading it does
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
        with pytest.raises(KeyboardInterrupt):
            next(read_chunks(Reading(Source(pipe, 1, None)), first_row=0))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        os.write(unblocking, b"\n")
        os.close(unblocking)
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join(10)
            assert not thread.is_alive()

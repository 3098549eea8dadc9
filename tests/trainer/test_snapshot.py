from __future__ import annotations

import subprocess
import sys

import pytest

# What CPython's lock of its list of threads does now and then, done on purpose: the first forks hang in the
# child before it comes back from fork.
HANGING = """
import os, resource, sys, time, warnings
import numpy as np
from trainer.checkpoint.format.frames import Group, TensorBlock, receive
from trainer.checkpoint.save.snapshot import Sender

hangs, forks = int(sys.argv[1]), [0]
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]  # a data loader's, say
def count(): forks[0] += 1
def hang():
    while forks[0] <= hangs: time.sleep(60)
os.register_at_fork(before=count, after_in_child=hang)

values = np.arange(300_000, dtype=np.float32)
group = Group((TensorBlock("w", "float32", values.shape, (0,), values.shape, values),))
reading, writing = os.pipe()
sender = Sender([group], writing, fork=True)
values[:] = 0  # training continues: the snapshot must not see it
got = np.concatenate([np.frombuffer(bytes(c), np.float32) for _, chunks in receive(reading) for c in chunks])
assert np.array_equal(got, np.arange(300_000)), got
sender.close()
try:
    os.waitpid(-1, os.WNOHANG)
    print(forks[0], "and a child is left")
except ChildProcessError:
    print(forks[0])
"""


@pytest.mark.parametrize(("hangs", "forks"), [(0, 1), (1, 2), (9, 3)])
def test_a_hanging_forked_child_is_killed_and_the_snapshot_is_written(hangs: int, forks: int) -> None:
    command = [sys.executable, "-c", HANGING, str(hangs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout) == (0, f"{forks}\n"), done.stderr

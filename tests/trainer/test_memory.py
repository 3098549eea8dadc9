from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MEGABYTES = 256
# Fragmented memory has fewer huge pages to give, so a mapping that asks for them by itself is the measure.
ASKED = f"""
import mmap, re

def huge():
    return int(re.search("AnonHugePages: +([0-9]+) kB", open("/proc/self/smaps_rollup").read())[1])

def asked():
    before = huge()
    with mmap.mmap(-1, {MEGABYTES} << 20, flags=mmap.MAP_PRIVATE) as area:
        area.madvise(mmap.MADV_HUGEPAGE)
        for start in range(0, len(area), 4096):
            area[start] = 1
        return huge() - before
"""
PROGRAM = f"""
import trainer.loop.loop
import torch

{ASKED}
available = asked()
before = huge()
table = torch.empty({MEGABYTES} << 18)
table.fill_(1.0)
print(available, huge() - before)
"""


def test_tables_use_huge_pages_if_available() -> None:
    if not THP.exists() or "[never]" in THP.read_text():
        pytest.skip("this system gives no huge pages")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    available, used = (int(kilobytes) for kilobytes in done.stdout.split())
    if available < MEGABYTES * 1024 // 8:
        pytest.skip(f"memory is fragmented: of {MEGABYTES} MB, {available // 1024} MB are in huge pages")
    assert used > available // 2


# A child lives while every page of the array is written to, as a save does beside training.
SPLIT = f"""
import os, sys
import trainer.loop.loop
import numpy as np
import torch
from trainer.checkpoint.format.frames import Group, TensorBlock, receive
from trainer.checkpoint.save.snapshot import Sender, as_array

os.environ["THP_MEM_ALLOC_ENABLE"] = sys.argv[1]

{ASKED}
before = huge()
values = as_array(torch.zeros({MEGABYTES} << 18))
made = huge() - before
blocks = [
    TensorBlock(f"w{{number}}", "float32", part.shape, (0,), part.shape, part)
    for number, part in enumerate(np.array_split(values, 41))  # tables lie side by side
]
reading, writing = os.pipe()
sender = Sender([Group((each,)) for each in blocks], writing, fork=True)
values[:] = np.arange(len(values), dtype=np.float32)
split = huge() - before
for _, chunks in receive(reading):
    assert not any(map(any, chunks)), "the snapshot changed"
while sender._child is not None:
    sender.reap()
sender._huge_pages.wait()
joined = huge() - before
sender.close()
assert np.array_equal(values, np.arange(len(values), dtype=np.float32))
print(made, split, joined, asked())
"""


@pytest.mark.parametrize("wanted", ["1", "0"])
def test_pages_that_a_fork_split_are_joined_again_unless_huge_pages_are_off(wanted: str) -> None:
    if not THP.exists() or "[never]" in THP.read_text():
        pytest.skip("this system gives no huge pages")
    if tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) < (6, 1):
        pytest.skip("this kernel joins no pages on request")
    done = subprocess.run(
        [sys.executable, "-c", SPLIT, wanted], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    made, split, joined, available = (int(kilobytes) for kilobytes in done.stdout.split())
    if min(made, available) < MEGABYTES * 1024 * 7 // 8:
        pytest.skip(f"memory is fragmented: of {MEGABYTES} MB, {available // 1024} MB are in huge pages")
    assert split < made // 8
    assert (joined > made * 3 // 4) == (wanted == "1")

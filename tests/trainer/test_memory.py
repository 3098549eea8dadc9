from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MEGABYTES = 256
# Fragmented memory has fewer huge pages to give, so a mapping that asks for them by itself is the measure.
PROGRAM = f"""
import mmap, re
import trainer.loop.loop
import torch

def huge():
    return int(re.search("AnonHugePages: +([0-9]+) kB", open("/proc/self/smaps_rollup").read())[1])

def asked():
    before = huge()
    with mmap.mmap(-1, {MEGABYTES} << 20, flags=mmap.MAP_PRIVATE) as area:
        area.madvise(mmap.MADV_HUGEPAGE)
        for start in range(0, len(area), 4096):
            area[start] = 1
        return huge() - before

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

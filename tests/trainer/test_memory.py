from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MEGABYTES = 256
PROGRAM = f"""
import trainer.loop
import torch
table = torch.empty({MEGABYTES} << 18)
table.fill_(1.0)
print(open("/proc/self/smaps_rollup").read())
"""


def test_tables_lie_in_huge_pages_where_the_system_has_them() -> None:
    if not THP.exists() or "[never]" in THP.read_text():
        pytest.skip("this system gives no huge pages")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    huge = re.search(r"AnonHugePages: +([0-9]+) kB", done.stdout)
    assert huge is not None
    assert int(huge[1]) > MEGABYTES * 1024 // 2

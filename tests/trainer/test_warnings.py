"""The trainer's warnings: each is printed once, and other libraries' messages are still printed."""

from __future__ import annotations

import os
import subprocess
import sys

_WARN = """
import logging
from trainer.base.console import importing_torch

with importing_torch():
    import fbgemm_gpu  # calls logging.info(), which adds a handler to a root logger that has none
for _ in range(2):
    logging.getLogger("trainer.somewhere").warning("the disk is %s", "slow")
logging.warning("of a library")
"""


def _stderr(local_rank: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _WARN],
        env=os.environ | {"LOCAL_RANK": local_rank},
        check=True,
        capture_output=True,
        text=True,
    )
    return [line for line in done.stderr.splitlines() if "slow" in line or "library" in line]


def test_a_warning_is_printed_once_after_torch_is_imported() -> None:
    assert _stderr("0") == ["warning: the disk is slow", "WARNING:root:of a library"]


def test_only_the_first_rank_of_a_machine_prints_a_warning() -> None:
    assert _stderr("1") == ["WARNING:root:of a library"]

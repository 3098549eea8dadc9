"""The demo fails on wrong results only."""

from __future__ import annotations

from typing import Any

import pytest

from scripts import demo

_KNOWN = {"linear_auc": 0.7, "bayes_auc": 0.8}
_DAY = 24 * 60.0  # minutes


def _judge(*, gap: float = 0.95, minutes: float = 1.0, peak_gib: float = 1.0, left: int = 0) -> int:
    auc = 0.7 + gap * 0.1
    summary: dict[str, Any] = {"auc": auc, "samples_seen": 1, "samples_per_s": 1.0, "world_size": 2}
    return demo.judge(summary, _KNOWN, minutes=minutes, peak_gib=peak_gib, left=left)


def test_a_slow_machine_with_little_memory_does_not_fail_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert _judge(minutes=_DAY, peak_gib=100.0) == 0
    assert "1440.0 minutes in all, at most 100.00 GiB resident" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [{"gap": 0.89}, {"left": 1}])
def test_a_wrong_result_fails_the_demo(wrong: dict[str, Any]) -> None:
    assert _judge(**wrong) == 1

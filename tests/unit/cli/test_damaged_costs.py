"""A damaged cost file hides its cluster's cost alone: every command says so and shows the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudrec.cli.main import run

ROW = {
    "day": "2030-01-01", "pool": "p", "instance_type": "x", "capacity": "spot", "run": "r", "node_s": 3600.0,
    "usd": 2.5,
}  # fmt: skip


def costs(home: Path, cluster: str, row: dict[str, Any], **more: object) -> None:
    ledger = {"schema": 1, "since": 1.7e9, "at": 1.7e9, "seen": {}, "rows": [row]}
    document = {
        "cluster": cluster, "provider": "aws", "owner": "me", "created": 1.7e9, "problem": "",
        "is_removed": True, "is_read": False, "round_at": None, "ledger": ledger, **more,
    }  # fmt: skip
    folder = home / "costs"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    (folder / f"{cluster}-1700000000.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("row", "more"),
    [
        ({**ROW, "usd": "2.5"}, {}),
        ({**ROW, "usd": [1]}, {}),
        ({**ROW, "usd": 1e300}, {}),
        ({**ROW, "day": None}, {}),
        ({**ROW, "of_a_newer_version": 1}, {}),
        (ROW, {"created": "yesterday"}),
        (ROW, {"is_removed": "yes"}),
    ],
)
def test_other_clusters_costs_are_shown(
    row: dict[str, Any],
    more: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path / "home"))
    costs(tmp_path / "home", "sound", ROW)
    costs(tmp_path / "home", "damaged", row, **more)
    for words in (["cost"], ["cost", "--by", "day"], ["cost", "-o", "json"]):
        assert run(words) == 0
        out = capsys.readouterr()
        assert "2.5" in out.out
        assert "damaged-1700000000.json cannot be read" in out.out + out.err
    assert run(["status"]) == 0

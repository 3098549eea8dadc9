"""Dashboards and rules name only metrics that are exported, by us or by the vendors' exporters."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudrec.keeper.notices import gauges
from cloudrec.observe.prometheus import run_metrics
from scripts import dashboards

ROOT = Path(__file__).parents[3]
RULES = ROOT / "infra" / "prometheus"
# NVIDIA/dcgm-exporter, etc/default-counters.csv; prometheus/node_exporter, collector/infiniband_linux.go
VENDORS = {
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "node_infiniband_port_data_transmitted_bytes_total",
    "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_link_downed_total",
}
OURS = {metric.name for metric in (*run_metrics.METRICS, *gauges.METRICS)}
_NAME = re.compile(r"\b(?:cloudrec|node|DCGM)_[A-Za-z0-9_:]+")


def _groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((RULES / "cloudrec-rules.yaml").read_text())["groups"]
    return found


def _recorded() -> set[str]:
    return {rule["record"] for group in _groups() for rule in group["rules"] if "record" in rule}


def _boards() -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_text()) for path in dashboards.FOLDER.glob("*.json")}


def test_the_files_are_those_that_the_script_writes() -> None:
    assert {path.name: path.read_text() for path in dashboards.FOLDER.glob("*.json")} == dashboards.files()


def test_every_metric_of_the_dashboards_is_exported() -> None:
    found = {
        name
        for board in _boards().values()
        for text in (
            *dashboards.expressions(board),
            *(variable.get("definition", "") for variable in board["templating"]["list"]),
        )
        for name in _NAME.findall(text)
    }
    assert found - OURS - VENDORS - _recorded() == set()
    # What we export, we show; these are in the tables of `cloudrec status` or parts of others.
    unseen = OURS - found
    assert len(unseen) < 20, sorted(unseen)


def test_every_metric_of_the_rules_is_exported() -> None:
    found = {name for group in _groups() for rule in group["rules"] for name in _NAME.findall(rule["expr"])}
    assert found - OURS - VENDORS == set()


def test_the_panels_of_a_dashboard_do_not_overlap_and_use_its_variables() -> None:
    for board in _boards().values():
        known = {variable["name"] for variable in board["templating"]["list"]}
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
        assert len(set(places)) == len(places)
        assert len({panel["id"] for panel in board["panels"]}) == len(places)
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"])))
        assert used <= known, used - known


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: `make prometheus-tools`")
def test_the_rules_do_what_their_tests_say() -> None:
    for words in (["check", "rules", "cloudrec-rules.yaml"], ["test", "rules", "cloudrec-rules-test.yaml"]):
        done = subprocess.run(["promtool", *words], cwd=RULES, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

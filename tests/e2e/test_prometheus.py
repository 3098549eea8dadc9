"""A real Prometheus scrapes a local run and a keeper, and answers each query of the dashboards."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cloudrec.keeper.ends import Metered
from cloudrec.keeper.meter import LiveNode, Tariff
from cloudrec.keeper.note import Note
from cloudrec.keeper.notices.detect import ClusterSight
from cloudrec.keeper.notices.gauges import KeeperGauges
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.local.launcher import LAUNCHER
from cloudrec.notify.outbox import Outbox
from cloudrec.observe.prometheus import run_metrics
from cloudrec.observe.prometheus.run_metrics import RunGauges
from cloudrec.observe.prometheus.server import LOOPBACK, MetricsServer
from cloudrec.spec.models import ClusterSpec
from scripts import dashboards
from tests.e2e.test_local_launcher import LONG, runs
from tests.e2e.test_notified_runs import _launch
from tests.unit.notify.support_receivers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["runs"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus: `make prometheus-tools`"),
]
RULES = Path(__file__).parents[2] / "infra" / "prometheus" / "cloudrec-rules.yaml"
_READY_S = 120.0
TRAIN = {
    "epoch": 0,
    "loss": 0.5,
    "samples": 64,
    "samples_per_s": 640.0,
    "lr": 0.1,
    "goodput": 1.0,
    "memory_bytes": 9,
    "step_s": 0.1,
    "data_wait_s": 0.0,
}


@contextmanager
def prometheus(folder: Path, *targets: int) -> Iterator[str]:
    """Yield the URL of a Prometheus that scrapes ports of loopback every second."""
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "cloudrec",
                "static_configs": [{"targets": [f"127.0.0.1:{each}" for each in targets]}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    checked = subprocess.run(
        ["promtool", "check", "config", str(folder / "prometheus.yml")], capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    words = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    words += [f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(["prometheus", *words], stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _get(url: str, path: str, **query: str) -> Any:
    address = f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - loopback
        document = json.loads(answer.read())
    assert document["status"] == "success"
    return document["data"]


def _ask(url: str, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _get(url, "query", query=query)["result"]
    return found


def _wait_for(url: str, query: str) -> list[dict[str, Any]]:
    give_up = time.monotonic() + _READY_S
    while True:
        try:
            if found := _ask(url, query):
                return found
        except OSError:
            pass
        assert time.monotonic() < give_up, f"no sample of {query}"
        time.sleep(0.5)


def _keeper() -> KeeperGauges:
    gauges = KeeperGauges()
    tariffs = (Tariff(pool="gpu", instance_type="p5.48xlarge", capacity="spot", hourly_usd=44.0, gpus=8),)
    note = Note(cluster=ClusterSpec(name="ads", provider="aws", budget_usd=500.0), tariffs=tariffs)
    sight = ClusterSight(
        now=time.time(), cluster="ads", pools={}, spent_usd=450.0, budget_usd=500.0, end=time.time() + 900
    )
    metered = Metered(at=None, spent_usd=450.0, hourly_usd=88.0, most_usd=88.0)  # type: ignore[arg-type]
    nodes = [LiveNode(uid=uid, pool="gpu", created=0.0) for uid in ("a", "b")]
    outbox = Outbox(facts={"moves:dlrm": "2", "preemptions:dlrm": "3"})
    gauges.see(note, sight, metered, nodes, outbox)
    return gauges


def test_a_real_prometheus_answers_each_query_of_the_dashboards(runs: Path, tmp_path: Path) -> None:
    port = free_port()
    run = _launch(runs, {**LONG, "checkpoint_interval": 5}, metrics_port=port)
    keeper = MetricsServer(0, address=LOOPBACK, page=_keeper().text)
    keeper.start()
    try:
        with prometheus(tmp_path, port, keeper.port) as url:
            (step,) = _wait_for(url, 'cloudrec_run_step{run="try"} > 5')
            assert step["metric"]["cluster"] == "local"
            assert _wait_for(url, 'cloudrec_run_loss{run="try"}')
            (nodes,) = _wait_for(url, 'cloudrec_cluster_nodes{capacity_type="spot"}')
            assert nodes["value"][1] == "2"
            (price,) = _wait_for(url, "cloudrec_cluster:cost:usd_per_gpu_hour")
            assert float(price["value"][1]) == 5.5
            alerts = {
                each["metric"]["alertname"] for each in _wait_for(url, 'ALERTS{alertname=~"Cloudrec.*"}')
            }
            assert {"CloudrecBudgetLow", "CloudrecEndNear"} <= alerts
            for board in dashboards.DASHBOARDS:
                for query in dashboards.expressions(dashboards.document(board)):
                    # An error of the parser or of the labels raises.
                    _ask(url, re.sub(r"\$(" + "|".join(board.variables) + ")", ".*", query))
            health = _get(url, "targets")["activeTargets"]
            assert [each["lastError"] for each in health] == ["", ""]
            rules = [rule for group in _get(url, "rules")["groups"] for rule in group["rules"]]
            assert {rule["health"] for rule in rules} == {"ok"}
            metadata = _get(url, "metadata")
            assert metadata["cloudrec_run_step"][0]["type"] == "gauge"
            assert metadata["cloudrec_run_restarts_total"][0]["type"] == "counter"
    finally:
        keeper.close()
        LAUNCHER.stop(run, grace_s=20)


def test_promtool_accepts_the_pages(tmp_path: Path) -> None:
    records = [
        {"kind": "start", "step": 0, "total_steps": 9, "attempt": 1},
        {"kind": "train", "step": 1, **TRAIN, "goodput_parts": {"productive_s": 1.0}},
        {"kind": "eval", "step": 2, "auc": 0.7, "logloss": 0.5, "ne": 0.9, "calibration": 1.0},
        {"kind": "checkpoint", "step": 2, "bytes": 9, "seconds": 0.1, "content": "full", "time": 1.0},
        {"step": 3, "ndcg": 0.25, "time": 2.0},
    ]
    run = RunFolder(path=tmp_path)
    run.metrics_file.write_text("".join(json.dumps(record) + "\n" for record in records))
    page = RunGauges(run, labels={"run": "r"}).text()
    assert [metric.name for metric in run_metrics.METRICS if f"# TYPE {metric.name} " not in page] == []
    for text in (page, _keeper().text()):
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

"""A cluster on this machine has no guard: after hours, there is still no alarm about one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from cloudrec.app import AppContext, clusters, up
from cloudrec.home import Home
from cloudrec.spec.load import load


def test_a_cluster_without_a_guard_raises_no_alarm(tmp_path: Path) -> None:
    now = AppContext(home=Home(root=tmp_path), environment={}).now()
    app = AppContext(home=Home(root=tmp_path), environment={}, now=lambda: now + timedelta(hours=2))
    spec = load(None, environment={}, flags={("cluster", "provider"): ("PROVIDER", "local")}, folder=tmp_path)
    up(app, spec.spec.cluster, decide=lambda _plan: True)
    (view,) = clusters(app)
    assert view.alarm == ""
    assert view.cost.usd == 0.0

"""Serves a run's metrics beside its trainer: in the agent, or as `python -m cloudrec.agent metrics`.

On this machine the run's supervisor starts it, and it ends with the supervisor.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.observe.prometheus.run_metrics import RunGauges
from cloudrec.observe.prometheus.server import EVERYWHERE, LOOPBACK, MetricsServer
from cloudrec.process import tether

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.agent.settings import PodSettings


def serve_pod(settings: PodSettings, *, cluster: str, say: Callable[[str], None]) -> None:
    """Serve the metrics of a pod's run at all its addresses; a port in use is reported, and no error."""
    if not settings.metrics_port:
        return
    labels = {"run": settings.run, "cluster": cluster}
    gauges = RunGauges(settings.folder, labels=labels)
    try:
        MetricsServer(settings.metrics_port, address=EVERYWHERE, page=gauges.text).start()
    except PreflightError as error:
        say(f"warning: {error.message}")


def main(arguments: list[str]) -> int:
    """Serve the metrics of a run in a folder until the parent ends; return 1 if the port is not free."""
    parser = argparse.ArgumentParser(prog="python -m cloudrec.agent metrics", allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="the run's folder")
    parser.add_argument("--port", type=int, required=True, help="the port, on this machine alone")
    parser.add_argument("--cluster", default="local", help="the cluster's name")
    options = parser.parse_args(arguments)
    if parent := os.environ.get(tether.PARENT_PID):
        tether.die_with(int(parent))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    run = RunFolder(path=options.folder)
    gauges = RunGauges(run, labels={"run": run.name, "cluster": options.cluster})
    server = MetricsServer(options.port, address=LOOPBACK, page=gauges.text)
    server.start()
    print(f"metrics: http://{LOOPBACK}:{server.port}/metrics", file=sys.stderr, flush=True)
    threading.Event().wait()
    return 0

"""One HTML page about a run, with figures, curves, events and configuration. It loads no other file."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec.home import write_atomically
from cloudrec.observe.page.details import run_details
from cloudrec.observe.page.render import asset, render, sha256
from cloudrec.observe.runs import view_run

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.launchers.base.run_folder import RunFolder


def write_report(run: RunFolder, path: Path, *, cost_usd: float | None = None) -> Path:
    """Write the page about a run's present state; StorageError if the disk refuses. See `render_report`."""
    write_atomically(path, render_report(run, cost_usd=cost_usd))
    return path


def render_report(run: RunFolder, *, cost_usd: float | None = None) -> str:
    """Return the page about a run's present state: running, failed or finished.

    Args:
        run: the run's folder.
        cost_usd: what it has cost, in USD; None if that is unknown.
    """
    view = replace(view_run(run), cost_usd=cost_usd)
    style, script = asset("page.css"), asset("charts.js")
    return render(
        "report.html.j2",
        details=run_details(run, view),
        style=style,
        script=script,
        policy=f"default-src 'none'; style-src {sha256(style)}; script-src {sha256(script)}",
        made=time.time(),
    )

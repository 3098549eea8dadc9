"""The smoke run: a small job on a cluster in which every rank reports, and all ranks communicate."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cloudrec.agent.checks.smoke_report import SmokeReport
from cloudrec.app.addons import prepare_run
from cloudrec.app.choosing import choose
from cloudrec.app.run.launch import place_of, run_spec
from cloudrec.app.run.measured_links import keep_links
from cloudrec.errors import UsageError
from cloudrec.findings import Finding
from cloudrec.launchers.base import outputs
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.run_folder import create_run
from cloudrec.launchers.base.runspec import new_run_name
from cloudrec.observe.runs import load_run
from cloudrec.observe.status import wait_for_end
from cloudrec.providers.base.access import KubernetesAccess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.agent.checks.smoke_report import Bandwidth
    from cloudrec.app.context import AppContext
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.providers.base.access import Access
    from cloudrec.spec.load import Loaded

_PROGRAM = ("-P", "-m", "cloudrec.agent.checks.smoke")
_PATIENCE_S = 900.0  # images of several gigabytes are pulled first
_SLOW = 0.5  # of the hardware's bandwidth: a lower result is more than noise


def smoke_run(app: AppContext, loaded: Loaded) -> Sequence[Finding]:
    """Run the smoke job with the chosen launcher on every node of the cluster; return the findings.

    Raises:
        PreflightError: no cluster is up, or it cannot run the job.
        UsageError: several clusters match.
    """
    wanted = loaded.spec.cluster
    named = ("cluster", "provider") in loaded.origins
    cluster = choose(app, provider_name=wanted.provider if named else None, cluster_name=wanted.name)
    place = place_of(app, loaded, cluster)
    spec = run_spec(
        loaded,
        place,
        (),
        name=new_run_name(datetime.now(UTC), prefix="smoke"),
        command=(sys.executable, *_PROGRAM),
    )
    place.launcher.preflight(spec)
    with app.cluster_lock(cluster.title):
        prepare_run(app, cluster, place.access, image="" if spec.setup else spec.image)
        folder = create_run(app.home.runs, spec)
        place.launcher.submit(folder)
    app.report(f"run {spec.name}: {spec.world_size} ranks on {spec.nodes} nodes")
    try:
        status = wait_for_end(folder, timeout_s=_PATIENCE_S)
        findings = _findings(app, folder, spec, place.access)
    except BaseException:  # also after Ctrl-C, the job must not continue
        _end(app, folder, spec)
        raise
    if status.state is RunState.SUCCEEDED:
        shutil.rmtree(folder.path, ignore_errors=True)
    else:
        _end(app, folder, spec)
    return findings


def _findings(app: AppContext, folder: RunFolder, spec: RunSpec, access: Access) -> list[Finding]:
    view = load_run(app.home.runs, folder.name)
    summary = outputs.read_summary(folder)
    if view.state is not RunState.SUCCEEDED:
        cause = view.cause or f"it is {view.state} after {_PATIENCE_S:g} s"
        remedy = f"cloudrec logs {folder.name}; cloudrec status {folder.name}"
        return [Finding(check="smoke run", ok=False, found=cause, needed="SUCCEEDED", remedy=remedy)]
    report = SmokeReport.of(summary)
    if isinstance(access, KubernetesAccess):
        machine = access.target.instance_type
        if keep_links(app, report, cluster=spec.cluster, provider=spec.provider, machine=machine):
            app.report(f"`cloudrec plan` uses these bandwidths for {machine}")
    return [_ranks(report, spec), _sum(report, spec), *map(_bandwidth, report.bandwidths)]


def _ranks(report: SmokeReport, spec: RunSpec) -> Finding:
    ranks = report.ranks
    devices = sorted({str(rank.get("device")) for rank in ranks})
    nodes = {rank.get("node") for rank in ranks}
    return Finding(
        check="smoke: ranks",
        ok=len(ranks) == spec.world_size,
        found=f"{len(ranks)} on {len(nodes)} node{'s' * (len(nodes) != 1)} ({', '.join(devices)})",
        needed=str(spec.world_size),
        remedy="`cloudrec status` shows which nodes are missing",
    )


def _sum(report: SmokeReport, spec: RunSpec) -> Finding:
    total = report.all_reduce
    return Finding(
        check="smoke: all-reduce",
        ok=total == spec.world_size,
        found=str(total),
        needed=str(spec.world_size),
        remedy="the ranks cannot reach each other: check network policies and firewalls",
    )


def _bandwidth(measured: Bandwidth) -> Finding:
    """Return a measurement beside the hardware's limit. Half of the limit is a warning, not an error."""
    expected = measured.expected_gb_s
    unit = "GB/s bus bandwidth" if measured.operation == "all-reduce" else "GB/s a rank"
    return Finding(
        check=f"smoke: {measured.operation} bandwidth",
        ok=expected is None or measured.gb_s >= _SLOW * expected,
        found=f"{measured.gb_s:.2f} {unit}, with {measured.mib} MiB",
        needed=f"{_SLOW * expected:.2f}, half of the hardware's {expected:.2f}" if expected else "",
        remedy="the fast transport may not be in use: see `cloudrec doctor --cluster NAME`",
        blocks=False,
    )


def _end(app: AppContext, folder: RunFolder, spec: RunSpec) -> None:
    """Stop the job if it still runs; its files are kept for diagnosis."""
    from cloudrec.app.run.manage import stop_run  # noqa: PLC0415 - needed after a failure only

    try:
        stop_run(app, folder.name, grace_s=spec.stop_grace_s)
    except UsageError:
        return  # it has ended

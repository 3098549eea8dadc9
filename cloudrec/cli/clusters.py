"""The commands for clusters: up, down, leaks, doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cloudrec.cli.console import announce
from cloudrec.cli.options import (
    cluster_option,
    confirm,
    context,
    dry_run_option,
    file_option,
    load_spec,
    output_option,
    set_option,
    yes_option,
)
from cloudrec.cli.output import columns, emit
from cloudrec.errors import PreflightError

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.app import Removal
    from cloudrec.engine.graph import Observed
    from cloudrec.engine.plan import Action, Plan
    from cloudrec.provider import Finding
    from cloudrec.spec.load import Flags
    from cloudrec.spec.models import ClusterSpec


@click.command()
@click.argument("provider", required=False)
@file_option
@cluster_option
@set_option
@dry_run_option
@yes_option
@output_option
def up(
    provider: str | None,
    file: Path | None,
    cluster: str | None,
    settings: tuple[str, ...],
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Create a cluster at PROVIDER, or converge one that is there; run again, it changes nothing."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    flags: Flags = {
        ("cluster", "provider"): ("PROVIDER", provider),
        ("cluster", "name"): ("--cluster", cluster),
    }
    spec = load_spec(file, settings, flags).spec.cluster

    def decide(plan: Plan) -> bool:
        announce(_plan_text(plan))
        if not dry_run and plan.changes and plan.hourly_usd > 0:
            confirm(f"This costs ${plan.hourly_usd:.2f} an hour. Go on?", yes=yes)
        return not dry_run

    plan = app.up(context(), spec, decide=decide)
    done = "would be up" if dry_run else "is up"
    document = {"clusters": [{"name": spec.title, "provider": spec.provider, **_plan_document(plan)}]}
    emit({**document, "dry_run": dry_run}, f"cluster {spec.title!r} {done} (${plan.hourly_usd:.2f}/h)")


@click.command()
@click.argument("provider", required=False)
@cluster_option
@click.option("--keep-data", is_flag=True, help="Keep runs and data.")
@dry_run_option
@yes_option
@output_option
def down(provider: str | None, cluster: str | None, *, keep_data: bool, dry_run: bool, yes: bool) -> None:
    """Remove everything that `up` and `train` made, then look whether anything is left."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    def decide(removal: Removal) -> bool:
        announce(_removal_text(removal))
        if not dry_run and (removal.plan.changes or removal.runs):
            confirm("Remove this?", yes=yes)
        return not dry_run

    removal = app.down(
        context(), provider_name=provider, cluster_name=cluster, keep_data=keep_data, decide=decide
    )
    if removal is None:
        emit({"clusters": [], "dry_run": dry_run}, "no cluster is up: nothing to remove")
        return
    done = "would be removed" if dry_run else "is gone; nothing of it is left"
    if keep_data and not dry_run:
        done = "is down; its data and runs are kept"
    document = {
        "name": removal.plan.cluster,
        **_plan_document(removal.plan),
        "runs": [
            {"name": run.name, "state": str(run.state), "removed": not keep_data} for run in removal.runs
        ],
    }
    emit({"clusters": [document], "dry_run": dry_run}, f"cluster {removal.plan.cluster!r} {done}")


@click.command()
@click.argument("provider", required=False)
@output_option
def leaks(provider: str | None) -> None:
    """Show what exists at PROVIDER under our tags, whether a cluster claims it, and its $/h."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    found = app.leaks(context(), _cluster_spec(provider).provider)
    rows = [
        (seen.cluster, seen.key, seen.identity, "yes" if claimed else "NO", f"${seen.hourly_usd:.2f}")
        for seen, claimed in found
    ]
    table = (
        columns(("CLUSTER", "RESOURCE", "IDENTITY", "CLAIMED", "$/H"), rows) if rows else "nothing is there"
    )
    emit({"resources": [{**_observed(seen), "claimed": claimed} for seen, claimed in found]}, table)


@click.command()
@click.argument("provider", required=False)
@file_option
@cluster_option
@output_option
def doctor(provider: str | None, file: Path | None, cluster: str | None) -> None:
    """Check everything that must be there before a cluster comes up at PROVIDER."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    flags: Flags = {
        ("cluster", "provider"): ("PROVIDER", provider),
        ("cluster", "name"): ("--cluster", cluster),
    }
    findings = app.doctor(context(), load_spec(file, (), flags).spec.cluster)
    rows = [(finding.check, _mark(finding), finding.found, finding.needed or None) for finding in findings]
    emit({"findings": [_finding(f) for f in findings]}, columns(("CHECK", "RESULT", "FOUND", "NEEDED"), rows))
    wrong = [finding for finding in findings if not finding.ok]
    for finding in wrong:
        announce(f"{finding.check}: {finding.remedy}")
    blocking = [finding.check for finding in wrong if finding.blocks]
    if blocking:
        raise PreflightError(f"not ready: {', '.join(blocking)}")


def _cluster_spec(
    provider: str | None,
    cluster: str | None = None,
    file: Path | None = None,
    settings: tuple[str, ...] = (),
) -> ClusterSpec:
    flags: Flags = {
        ("cluster", "provider"): ("PROVIDER", provider),
        ("cluster", "name"): ("--cluster", cluster),
    }
    return load_spec(file, settings, flags).spec.cluster


def _mark(finding: Finding) -> str:
    return "ok" if finding.ok else "FAILS" if finding.blocks else "warning"


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "ok": finding.ok,
        "found": finding.found,
        "needed": finding.needed,
        "remedy": finding.remedy,
        "blocks": finding.blocks,
    }


def _observed(seen: Observed) -> dict[str, Any]:
    return {
        "cluster": seen.cluster,
        "kind": seen.kind,
        "name": seen.name,
        "identity": seen.identity,
        "state": seen.condition.value,
        "tags": dict(seen.tags),
        "hourly_usd": seen.hourly_usd,
    }


def _plan_document(plan: Plan) -> dict[str, Any]:
    return {
        "hourly_usd": plan.hourly_usd,
        "actions": [
            {
                "step": action.step.value,
                "resource": action.key,
                "reason": action.reason,
                "hourly_usd": action.hourly_usd,
                "properties": dict(_properties(action)),
            }
            for action in plan.actions
        ],
    }


def _properties(action: Action) -> Any:  # noqa: ANN401  # whatever the provider describes
    source = action.resource or action.observed
    return source.properties if source is not None else {}


def _plan_text(plan: Plan) -> str:
    rows = [
        (action.step.value, action.key, f"${action.hourly_usd:.2f}", action.reason, _shown(action))
        for action in plan.actions
    ]
    total = f"{len(plan.changes)} to change, {len(plan.actions) - len(plan.changes)} to keep; "
    return (
        columns(("STEP", "RESOURCE", "$/H", "WHY", "WHAT"), rows)
        + f"\n{total}${plan.hourly_usd:.2f}/h in all"
    )


def _shown(action: Action) -> str:
    return ", ".join(f"{key}={value}" for key, value in _properties(action).items())


def _removal_text(removal: Removal) -> str:
    rows: list[tuple[object, ...]] = [
        (action.step.value, action.key, f"${action.hourly_usd:.2f}", action.reason)
        for action in removal.plan.actions
    ]
    for run in removal.runs:
        end = "" if run.state.is_final else "stop, then "
        step = f"{end}{'keep' if removal.keep_data else 'delete'}"
        rows.append((step, f"run/{run.name}", "$0.00", f"{run.state}, of this cluster"))
    return columns(("STEP", "RESOURCE", "$/H", "WHY"), rows)

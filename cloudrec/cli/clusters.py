"""The commands for clusters: up, down, leaks, doctor."""

from __future__ import annotations

import time
from dataclasses import asdict
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
from cloudrec.cli.output import columns, duration, emit
from cloudrec.errors import PreflightError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cloudrec.app import Leak, Removal
    from cloudrec.engine.graph import Observed
    from cloudrec.engine.plan import Action, Plan
    from cloudrec.provider import Finding
    from cloudrec.spec.load import Flags
    from cloudrec.spec.models import ClusterSpec


_WIDEST = 70  # characters of a thing's properties in a table


@click.command()
@click.argument("provider", required=False)
@file_option
@cluster_option
@click.option("--region", metavar="NAME", help="Where.")
@click.option("--zones", metavar="A,B", help="Zones to try for GPU nodes, the best first.")
@click.option("--instance-types", metavar="A,B", help="Kinds of GPU node to try, the best first.")
@click.option("--nodes", type=int, metavar="N", help="GPU nodes.")
@click.option("--capacity", metavar="HOW", help="on-demand, spot, or spot-first.")
@click.option("--ttl", metavar="TIME", help="How long the cluster may live, as 8h or 2d.")
@click.option("--budget", type=float, metavar="USD", help="What the cluster may cost in all.")
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
    **asked: object,
) -> None:
    """Create a cluster at PROVIDER, or converge one that is there; run again, it changes nothing."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    keys = {"budget": "budget_usd"}
    flags: Flags = {
        ("cluster", "provider"): ("PROVIDER", provider),
        ("cluster", "name"): ("--cluster", cluster),
        **{
            ("cluster", keys.get(name, name)): (f"--{name.replace('_', '-')}", value)
            for name, value in asked.items()
        },
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
@click.option("--expired", is_flag=True, help="Every cluster whose end has come; for cron, with --yes.")
@dry_run_option
@yes_option
@output_option
def down(
    provider: str | None, cluster: str | None, *, keep_data: bool, expired: bool, dry_run: bool, yes: bool
) -> None:
    """Remove everything that `up` and `train` made, then look whether anything is left."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    if not expired:
        document, text = _take_down(provider, cluster, keep_data=keep_data, dry_run=dry_run, yes=yes)
        emit({"clusters": [document] if document else [], "dry_run": dry_run}, text)
        return
    over = app.expired(context(), _cluster_spec(provider).provider)
    done = [
        _take_down(each.provider, each.title, keep_data=keep_data, dry_run=dry_run, yes=yes)
        for each in over
        if cluster in {None, each.title}
    ]
    documents = [document for document, _ in done if document]
    emit({"clusters": documents, "dry_run": dry_run}, "\n".join(text for _, text in done) or "none has ended")


def _take_down(
    provider: str | None, cluster: str | None, *, keep_data: bool, dry_run: bool, yes: bool
) -> tuple[dict[str, Any] | None, str]:
    """Remove one cluster; what was done for programs and for people."""
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
        return None, "no cluster is up: nothing to remove"
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
    return document, f"cluster {removal.plan.cluster!r} {done}"


@click.command()
@click.argument("provider", required=False)
@click.option("--region", "regions", multiple=True, metavar="NAME", help="Look there; may be given again.")
@click.option("--delete", is_flag=True, help="Remove what no cluster claims.")
@yes_option
@output_option
def leaks(provider: str | None, regions: tuple[str, ...], *, delete: bool, yes: bool) -> None:
    """Show what exists at PROVIDER under our tags, whether a cluster claims it, and its $/h."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    application, name = context(), _cluster_spec(provider).provider
    found = app.leaks(application, name, locations=regions)
    gone: Sequence[Leak] = []
    if delete:

        def decide(stray: Sequence[Leak]) -> bool:
            announce(_leaks_table(stray))
            confirm("Remove these, which no cluster claims?", yes=yes)
            return True

        gone = app.remove_leaks(application, name, found, decide=decide)
    removed = {leak.found.identity for leak in gone}
    left = [leak for leak in found if leak.found.identity not in removed]
    emit(
        {"resources": [_leak(leak) for leak in left], "removed": [_leak(leak) for leak in gone]},
        (f"{len(gone)} removed\n" if delete else "") + _leaks_table(left),
    )


def _leaks_table(found: Sequence[Leak]) -> str:
    if not found:
        return "nothing is there"
    claims = {"": "NO", "known": "yes", "alive": "its cluster lives"}
    rows = [
        (
            leak.found.cluster or None,
            leak.found.key,
            leak.found.identity,
            leak.found.location or None,
            None if leak.found.created is None else duration(time.time() - leak.found.created),
            leak.found.owner or None,
            claims[leak.claim],
            f"${leak.found.hourly_usd:.2f}",
        )
        for leak in found
    ]
    total = sum(leak.found.hourly_usd for leak in found)
    headers = ("CLUSTER", "RESOURCE", "IDENTITY", "REGION", "AGE", "OWNER", "CLAIMED", "$/H")
    return f"{columns(headers, rows)}\n{len(found)} in all, ${total:.2f}/h"


def _leak(leak: Leak) -> dict[str, Any]:
    return {**_observed(leak.found), "claimed": bool(leak.claim), "claim": leak.claim or None}


@click.command()
@click.argument("provider", required=False)
@click.option("--region", metavar="NAME", help="Where.")
@click.option("--instance-types", metavar="A,B", help="Further kinds of node to ask for.")
@click.option("--refresh", is_flag=True, help="Ask the cloud for its prices, and keep them for later plans.")
@output_option
def catalog(provider: str | None, region: str | None, instance_types: str | None, *, refresh: bool) -> None:
    """Show the kinds of node that PROVIDER has, each with its price and who says so when."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    flags: Flags = {
        ("cluster", "provider"): ("PROVIDER", provider),
        ("cluster", "region"): ("--region", region),
        ("cluster", "instance_types"): ("--instance-types", instance_types),
    }
    found = app.catalog(context(), load_spec(None, (), flags).spec.cluster, refresh=refresh)
    rows = [
        (
            offer.instance_type,
            f"{offer.gpus} x {offer.gpu}" if offer.gpus else None,
            offer.vcpus,
            f"{offer.memory_gib:g}",
            offer.capacity,
            offer.location,
            "ask" if offer.hourly_usd is None else f"${offer.hourly_usd:.2f}",
            offer.priced,
        )
        for offer in found
    ]
    headers = ("TYPE", "GPUS", "VCPUS", "GIB", "CAPACITY", "WHERE", "$/H", "PRICE OF")
    emit({"offers": [asdict(offer) for offer in found]}, columns(headers, rows))


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
        "owner": seen.owner,
        "location": seen.location,
        "created": seen.created,
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
    source = action.candidate or action.resource or action.observed
    return source.properties if source is not None else {}


def _plan_text(plan: Plan) -> str:
    rows = [
        (action.step.value, action.key, f"${action.hourly_usd:.2f}", action.reason, _shown(action))
        for action in plan.actions
    ]
    total = f"{len(plan.changes)} to change, {len(plan.actions) - len(plan.changes)} to keep; "
    text = columns(("STEP", "RESOURCE", "$/H", "WHY", "WHAT"), rows)
    for action in plan.actions:
        if action.resource is not None and action.resource.candidates:
            text += f"\n{action.key} is the first of these that can be had:"
            text += "".join(
                f"\n  {number}. {one.name}  ${one.hourly_usd:.2f}/h"
                for number, one in enumerate(action.resource.candidates, start=1)
            )
    return text + f"\n{total}${plan.hourly_usd:.2f}/h in all"


def _shown(action: Action) -> str:
    """Lay properties out in a line that fits; `-o json` has all of them."""
    text = ", ".join(f"{key}={value}" for key, value in _properties(action).items())
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


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

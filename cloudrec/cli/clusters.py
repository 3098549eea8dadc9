"""The commands that make and remove clusters: up, down."""

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
    provider_spec,
    set_option,
    yes_option,
)
from cloudrec.cli.output import emit
from cloudrec.cli.plans import plan_document, plan_text, removal_text

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.app import Removal
    from cloudrec.engine.plan import Plan
    from cloudrec.spec.load import Flags


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
@click.option("--ray", is_flag=True, default=None, help="With local: a Ray head of the cluster's own, too.")
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
    ray: bool | None,
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
        ("cluster", "settings", "ray"): ("--ray", ray),
        **{
            ("cluster", keys.get(name, name)): (f"--{name.replace('_', '-')}", value)
            for name, value in asked.items()
        },
    }
    spec = load_spec(file, settings, flags).spec.cluster

    def decide(plan: Plan) -> bool:
        announce(plan_text(plan))
        if not dry_run and plan.changes and plan.hourly_usd > 0:
            confirm(f"This costs ${plan.hourly_usd:.2f} an hour. Go on?", yes=yes)
        return not dry_run

    plan = app.up(context(), spec, decide=decide)
    done = "would be up" if dry_run else "is up"
    document = {"clusters": [{"name": spec.title, "provider": spec.provider, **plan_document(plan)}]}
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
    over = app.expired(context(), provider_spec(provider).provider)
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
        announce(removal_text(removal))
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
        **plan_document(removal.plan),
        "runs": [
            {"name": run.name, "state": str(run.state), "removed": not keep_data} for run in removal.runs
        ],
    }
    return document, f"cluster {removal.plan.cluster!r} {done}"

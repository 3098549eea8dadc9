"""The commands that create and remove clusters: up, down."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cloudrec.cli.console import announce
from cloudrec.cli.interrupted import ClusterInHand, in_hand
from cloudrec.cli.options import (
    at_work,
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
from cloudrec.cli.output import emit, next_step
from cloudrec.cli.plans import not_ready_text, plan_document, plan_summary, plan_text, removal_text
from cloudrec.engine.cost import Cost, price_text
from cloudrec.errors import CloudrecError, DeclinedError, UsageError
from cloudrec_contract.settings import underscored_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cloudrec.app import Removal
    from cloudrec.engine.graph import Observed
    from cloudrec.engine.plan import Plan, Upfront
    from cloudrec.spec.load import Flags


@click.command()
@click.argument("provider", required=False)
@file_option
@cluster_option
@click.option("--region", metavar="NAME", help="The cloud's region.")
@click.option("--zones", metavar="A,B", help="Zones to try for GPU nodes, in order of preference.")
@click.option(
    "--instance-types", metavar="A,B", help="Instance types to try for GPU nodes, in order of preference."
)
@click.option("--nodes", type=int, metavar="N", help="Number of GPU nodes.")
@click.option(
    "--capacity", metavar="TYPE", help="Capacity type: on-demand, spot, spot-first, block or flex-start."
)
@click.option("--hours", type=int, metavar="H", help="With --capacity block: its length in hours.")
@click.option("--start", metavar="TIME", help="With --capacity block: its earliest start, ISO 8601.")
@click.option(
    "--max-price",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="With --capacity block: the most that the block may cost; --yes needs it.",
)
@click.option(
    "--managed/--no-managed",
    default=None,
    help="Let the cluster's keeper create GPU nodes for runs, replace lost ones and remove them  "
    "[default: on spot capacity]",
)
@click.option(
    "--storage-of",
    metavar="CLUSTER",
    help="Use the bucket of this cluster, also from another region, rather than a new one.",
)
@click.option("--ttl", metavar="TIME", help="Remove the cluster after this time, e.g. 8h or 2d.")
@click.option(
    "--autostop", metavar="TIME", help="Scale GPU nodes to zero after this time without an active run."
)
@click.option(
    "--dataset",
    metavar="URI",
    help="A dataset for which the nodes must have room; nothing is created if they have not.",
)
@click.option(
    "--allow-tcp",
    is_flag=True,
    default=None,
    help="Create several nodes of a machine whose fabric has no transport profile.",
)
@click.option("--ray", is_flag=True, default=None, help="For the provider local: also start a Ray head.")
@click.option(
    "--from-plan", type=int, metavar="N", help="Take provider, region, type and nodes from row N of a plan."
)
@click.option(
    "--max-hourly", type=float, metavar="USD", help="Refuse a cluster that can cost more than this an hour."
)
@click.option("--budget", type=float, metavar="USD", help="Remove the cluster once it has cost this much.")
@click.option(
    "--access",
    metavar="WHO",
    help="Who reaches the Kubernetes API and the storage: auto (this machine's public address), private "
    "(only the cluster's network), or addresses such as 203.0.113.7,198.51.100.0/24.",
)
@click.option(
    "--force", is_flag=True, help="Create a private cluster although this machine does not reach its API."
)
@click.option("-v", "--verbose", is_flag=True, help="List every resource of the plan.")
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
    dataset: str | None,
    force: bool,
    verbose: bool,
    max_price: float | None,
    from_plan: int | None,
    dry_run: bool,
    yes: bool,
    **asked: object,
) -> None:
    """Create a cluster at PROVIDER, or reconcile one that exists. Running it again changes nothing."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    if from_plan is not None:
        provider, asked = _planned(from_plan, provider, asked)
    keys = {
        "budget": "budget_usd",
        "max_hourly": "max_hourly_usd",
        "hours": "block_hours",
        "start": "block_start",
    }
    flags: Flags = {
        ("cluster", "provider"): ("PROVIDER", provider),
        ("cluster", "name"): ("--cluster", cluster),
        ("cluster", "settings", "ray"): ("--ray", ray),
        ("trainer", "dataset_path"): ("--dataset", dataset),
        **{
            ("cluster", keys.get(name, name)): (f"--{name.replace('_', '-')}", value)
            for name, value in asked.items()
        },
    }
    loaded = load_spec(file, settings, flags).spec
    spec, path = loaded.asked_cluster, underscored_keys(loaded.trainer).get("dataset_path")
    wish = app.DatasetWish(uri=path, tier=loaded.train.data_tier) if isinstance(path, str) and path else None
    if max_price is not None and spec.capacity != "block":
        raise UsageError(
            f"--max-price is for --capacity block; cluster.capacity is {spec.capacity}",
            remedy="leave it out; --max-hourly limits the price an hour",
        )

    def decide(plan: Plan) -> bool:
        announce(plan_text(plan) if verbose else plan_summary(plan))
        if plan.most.unknown:
            announce(f"warning: not every price is known: {plan.most.unknown_text}")
        if not dry_run and plan.upfront is not None:
            _confirm_purchase(plan.upfront, plan.cost, yes=yes, max_price=max_price)
        elif not dry_run and plan.changes and plan.most != Cost():
            confirm(f"This costs {plan.cost.text}. Continue?", yes=yes)
        if not dry_run:
            hand.total = sum(not (each.resource and each.resource.is_shared) for each in plan.actions)
            work.begin(spec.provider, plan)
        return not dry_run

    with at_work() as work:
        application = context(work)
        hand = ClusterInHand(app=application, name=spec.title, provider=spec.provider)
        in_hand(hand.messages)
        plan = app.up(application, spec, decide=decide, force=force, most_upfront_usd=max_price, dataset=wish)
    missing = () if dry_run else app.missing_of(application, spec.title)
    state = {} if dry_run else {"state": "NOT READY" if missing else "READY"}
    document = {
        "name": spec.title,
        "provider": spec.provider,
        **plan_document(plan),
        **state,
        "missing": [asdict(each) for each in missing],
    }
    cost = plan.cost.text
    text = f"cluster {spec.title!r} {'would be' if dry_run else 'is'} up ({cost})"
    if missing:
        text = not_ready_text(spec.title, missing, cost=cost)
    emit({"clusters": [document], "dry_run": dry_run}, text)
    if missing:
        click.get_current_context().exit(1)  # the document, or the text, says why
    _next_after_up(spec.title, dry_run=dry_run)


def _next_after_up(name: str, *, dry_run: bool) -> None:
    if dry_run:
        next_step("the same command without --dry-run creates it")
        return
    name = shlex.quote(name)
    next_step(
        f"`cloudrec train --cluster {name}` launches a run",
        f"`cloudrec down --cluster {name}` removes the cluster",
    )


def _planned(number: int, provider: str | None, asked: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Return the provider and the options with those of a row of the last plan; the given ones win."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    row = app.kept_offer(context(), number)
    if provider not in {None, row.provider}:
        raise UsageError(
            f"row {number} of the last plan is on {row.provider}, and PROVIDER is {provider}",
            remedy="leave PROVIDER out, or plan with --provider",
        )
    chosen = {
        "region": row.region or None,
        "instance_types": row.machine,
        "nodes": row.nodes,
        "capacity": row.capacity,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    return row.provider, {**asked, **chosen, **given}


def _confirm_purchase(upfront: Upfront, rest: Cost, *, yes: bool, max_price: float | None) -> None:
    """Ask whether to buy what cannot be given back; `--yes` is no answer without a highest price."""
    if yes and max_price is None:
        raise UsageError(
            f"--yes does not buy {upfront.what} for {price_text(upfront.usd)} without a highest price",
            remedy="give the most that it may cost with --max-price, or answer the question without --yes",
        )
    confirm(
        f"This buys {upfront.what} for {price_text(upfront.usd)} now, which is not refunded; the rest costs "
        f"{rest.text}. Continue?",
        yes=yes,
    )


@click.command()
@click.argument("provider", required=False)
@cluster_option
@click.option("--keep-data", is_flag=True, help="Keep runs and data.")
@click.option("--expired", is_flag=True, help="Remove every cluster that has expired; for cron, with --yes.")
@click.option(
    "--forget",
    is_flag=True,
    help="Only drop the journal's record of --cluster, e.g. when its account is closed. Removes nothing.",
)
@dry_run_option
@yes_option
@output_option
def down(
    provider: str | None,
    cluster: str | None,
    *,
    keep_data: bool,
    expired: bool,
    forget: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove everything that `up` and `train` created, then check that nothing is left."""
    if forget:
        _forget(cluster, alone=not (keep_data or expired), dry_run=dry_run, yes=yes)
    elif expired:
        _take_down_expired(provider, cluster, keep_data=keep_data, dry_run=dry_run, yes=yes)
    else:
        document, text = _take_down(provider, cluster, keep_data=keep_data, dry_run=dry_run, yes=yes)
        emit({"clusters": [document] if document else [], "dry_run": dry_run}, text)
        if dry_run and document:
            next_step("the same command without --dry-run removes it")
        elif document:
            _next_after_removal(document["name"], document["provider"], keep_data=keep_data)


def _take_down_expired(
    provider: str | None, cluster: str | None, *, keep_data: bool, dry_run: bool, yes: bool
) -> None:
    """Remove every expired cluster; a failure of one does not keep the others."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    done, failed = [], list[CloudrecError]()
    for each in app.expired(context(), provider_spec(provider).provider):
        if cluster not in {None, each.title}:
            continue
        try:
            done.append(_take_down(each.provider, each.title, keep_data=keep_data, dry_run=dry_run, yes=yes))
        except DeclinedError:
            raise
        except CloudrecError as error:
            announce(f"cluster {each.title!r} is not removed: {error.message}")
            failed.append(error)
    if failed:
        raise failed[0]
    documents = [document for document, _ in done if document]
    emit(
        {"clusters": documents, "dry_run": dry_run},
        "\n".join(text for _, text in done) or "no cluster has expired",
    )
    next_step("`cloudrec status` shows the clusters that are up")


def _forget(cluster: str | None, *, alone: bool, dry_run: bool, yes: bool) -> None:
    """Drop a cluster from the journal."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    if cluster is None or not alone:
        raise UsageError(
            "--forget drops one cluster from the journal and removes nothing",
            remedy="cloudrec down --cluster NAME --forget, without --expired and --keep-data",
        )

    def decide(known: Sequence[Observed]) -> bool:
        for each in known:
            announce(f"in the journal, and may still exist: {each.key} {each.identity}".rstrip())
        if not dry_run:
            confirm(f"Forget cluster {cluster!r}? Its resources are not removed.", yes=yes)
        return not dry_run

    app.forget(context(), cluster, decide=decide)
    done = "would be forgotten" if dry_run else "is forgotten"
    emit(
        {"clusters": [{"name": cluster, "forgotten": not dry_run}], "dry_run": dry_run},
        f"cluster {cluster!r} {done}; its resources were not removed",
    )
    next_step("`cloudrec leaks PROVIDER` lists what is left of it")


def _next_after_removal(name: str, provider: str, *, keep_data: bool) -> None:
    words = f"{provider} --cluster {shlex.quote(name)}"
    if keep_data:
        next_step(
            f"`cloudrec up {words}` creates it again around its data",
            f"`cloudrec down {words}` removes the data",
        )
    else:
        next_step("`cloudrec cost` shows what it has cost", f"`cloudrec up {words}` creates another one")


def _take_down(
    provider: str | None, cluster: str | None, *, keep_data: bool, dry_run: bool, yes: bool
) -> tuple[dict[str, Any] | None, str]:
    """Remove one cluster; what was done for programs and for people."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    def decide(removal: Removal) -> bool:
        announce(removal_text(removal))
        if not dry_run and (removal.plan.changes or removal.runs):
            confirm("Remove this?", yes=yes)
        if not dry_run:
            hand.name, hand.provider = removal.plan.cluster, removal.provider
            hand.total = len(removal.plan.actions)
            work.begin(removal.provider, removal.plan, removal.after)
        return not dry_run

    with at_work() as work:
        application = context(work)
        hand = ClusterInHand(app=application, name=cluster, provider=provider, is_removal=True)
        in_hand(hand.messages)
        removal = app.down(
            application, provider_name=provider, cluster_name=cluster, keep_data=keep_data, decide=decide
        )
    if removal is None:
        return None, "no cluster is up: nothing to remove"
    done = "would be removed" if dry_run else "is removed; no resources remain"
    if keep_data and not dry_run:
        done = "is down; its data and runs are kept"
    if removal.unsearched:
        done = f"{done.partition('; no resources')[0]}. Not searched: {'; '.join(removal.unsearched)}"
    document = {
        "name": removal.plan.cluster,
        "provider": removal.provider,
        **plan_document(removal.plan),
        "runs": [
            {"name": run.name, "state": str(run.state), "removed": not keep_data} for run in removal.runs
        ],
        "unsearched": list(removal.unsearched),
    }
    return document, f"cluster {removal.plan.cluster!r} {done}"

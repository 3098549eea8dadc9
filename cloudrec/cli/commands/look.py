"""The commands that inspect clouds: leaks, catalog, doctor."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cloudrec.cli.console import announce
from cloudrec.cli.interrupted import ClusterInHand, in_hand
from cloudrec.cli.options import (
    cluster_option,
    confirm,
    context,
    file_option,
    load_spec,
    output_option,
    provider_spec,
    refuse_without,
    set_option,
    yes_option,
)
from cloudrec.cli.output import columns, duration, emit, fitted, next_step, wrapped
from cloudrec.engine.cost import price_text
from cloudrec.engine.graph import cost_of
from cloudrec.errors import PreflightError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cloudrec.app import GpuMachine, Leak
    from cloudrec.engine.graph import Observed
    from cloudrec.findings import Finding
    from cloudrec.providers.base.capacity.blocks import BlockOffer
    from cloudrec.spec.load import Flags

# The columns of leaks by importance.
_LEAKS_FIRST = ("RESOURCE", "CLAIMED", "$/H", "CLUSTER", "AGE", "REGION", "OWNER", "IDENTITY")


@click.command()
@click.argument("provider", required=False)
@click.option(
    "--region", "regions", multiple=True, metavar="NAME", help="A region to search; repeat for several."
)
@click.option("--all-regions", is_flag=True, help="Search every region that is enabled for the account.")
@click.option("--delete", is_flag=True, help="Remove orphaned resources that cloudrec made.")
@yes_option
@output_option
def leaks(
    provider: str | None, regions: tuple[str, ...], *, all_regions: bool, delete: bool, yes: bool
) -> None:
    """List resources with cloudrec's tags or names at PROVIDER, or in its clusters' networks, with $/h.

    Resources of kind `unmanaged` have cloudrec's tags or use a cluster's network, but cloudrec did not make
    them: they are listed and never removed.
    """
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    if regions and all_regions:
        raise UsageError("--region and --all-regions exclude each other", remedy="give one of them")
    application, name = context(), provider_spec(provider).provider
    search = app.leaks(application, name, locations=regions, everywhere=all_regions)
    found = search.leaks
    gone: Sequence[Leak] = []
    if delete:
        in_hand(ClusterInHand(app=application, name=None, provider=name, is_removal=True).messages)

        def decide(orphaned: Sequence[Leak]) -> bool:
            announce(_leaks_table(orphaned))
            confirm("Remove these orphaned resources?", yes=yes)
            return True

        gone = app.remove_leaks(application, name, found, decide=decide)
    removed = {leak.found.identity for leak in gone}
    left = [leak for leak in found if leak.found.identity not in removed]
    unsearched = [f"not searched: {text}" for text in search.unsearched]
    emit(
        {
            "resources": [_leak(leak) for leak in left],
            "removed": [_leak(leak) for leak in gone],
            "unsearched": list(search.unsearched),
        },
        "\n".join([*([f"{len(gone)} removed"] if delete else []), _leaks_table(left), *unsearched]),
    )
    orphaned = sum(not leak.claim for leak in left)
    if delete:
        next_step(f"`cloudrec leaks {name}` searches again")
    elif orphaned:
        next_step(f"`cloudrec leaks {name} --delete` removes those that cloudrec made for no cluster")


def _leaks_table(found: Sequence[Leak]) -> str:
    if not found:
        return "no resources found"
    claims = {"": "NO", "known": "yes", "alive": "its cluster exists"}
    rows = [
        (
            leak.found.cluster or None,
            leak.found.key,
            leak.found.identity,
            leak.found.location or None,
            None if leak.found.created is None else duration(max(time.time() - leak.found.created, 0.0)),
            leak.found.owner or None,
            claims[leak.claim],
            price_text(leak.found.hourly_usd),
        )
        for leak in found
    ]
    headers = ("CLUSTER", "RESOURCE", "IDENTITY", "REGION", "AGE", "OWNER", "CLAIMED", "$/H")
    table = fitted(headers, rows, first=_LEAKS_FIRST, more="-o wide")
    return f"{table}\n{len(found)} in all, {cost_of(leak.found for leak in found).text}"


def _leak(leak: Leak) -> dict[str, Any]:
    return {**_observed(leak.found), "claimed": bool(leak.claim), "claim": leak.claim or None}


@click.command()
@click.argument("provider", required=False)
@click.option("--region", metavar="NAME", help="The cloud's region.")
@click.option("--instance-types", metavar="A,B", help="More instance types to show.")
@click.option(
    "--gpu", metavar="MODEL", help="The machine types of all clouds with this GPU; no cloud is asked."
)
@click.option(
    "--refresh", is_flag=True, help="Fetch current prices from the cloud and save them for later plans."
)
@click.option(
    "--blocks", is_flag=True, help="The blocks of capacity that can be had: nodes for a fixed time."
)
@click.option("--nodes", type=int, metavar="N", help="With --blocks: the number of nodes.")
@click.option("--hours", type=int, metavar="H", help="With --blocks: the length in hours.")
@click.option("--start", metavar="TIME", help="With --blocks: the earliest start, ISO 8601.")
@click.option("--zones", metavar="A,B", help="With --blocks: only these zones.")
@output_option
def catalog(
    provider: str | None,
    region: str | None,
    instance_types: str | None,
    gpu: str | None,
    *,
    refresh: bool,
    blocks: bool,
    **of_block: int | str | None,
) -> None:
    """List the instance types of PROVIDER with their prices, and the source and date of each price.

    \b
    Examples:
      cloudrec catalog aws           its types, on demand and as spot
      cloudrec catalog --gpu H100    that GPU in all clouds, from shipped tables
      cloudrec catalog aws --blocks --instance-types p5.48xlarge --hours 48
    """  # noqa: D301  # \b is click's mark for lines that are not to be joined
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    if gpu is not None:
        given = {
            "--region": region,
            "--instance-types": instance_types,
            "--refresh": refresh or None,
            "--blocks": blocks or None,
        }
        if wrong := [name for name, value in given.items() if value is not None]:
            raise UsageError(
                f"--gpu and {', '.join(wrong)} exclude each other: no cloud is asked",
                remedy="give one of them",
            )
        machines = app.gpu_machines(context(), gpu, provider)
        emit({"machines": [asdict(each) for each in machines]}, _gpu_table(machines))
        return
    flags: Flags = {
        ("cluster", "provider"): ("PROVIDER", provider),
        ("cluster", "region"): ("--region", region),
        ("cluster", "instance_types"): ("--instance-types", instance_types),
    }
    if blocks:
        _list_blocks(flags, of_block, refresh=refresh)
        return
    refuse_without("--blocks", [f"--{name}" for name, value in of_block.items() if value is not None])
    found = app.catalog(context(), load_spec(None, (), flags).spec.cluster, refresh=refresh)
    rows = [
        (
            offer.instance_type,
            f"{offer.gpus} x {offer.gpu}" if offer.gpus else None,
            offer.vcpus,
            f"{offer.memory_gib:g}",
            offer.capacity,
            offer.location,
            price_text(offer.hourly_usd),
            offer.priced,
        )
        for offer in found
    ]
    headers = ("TYPE", "GPUS", "VCPUS", "GIB", "CAPACITY", "WHERE", "$/H", "PRICE OF")
    emit({"offers": [asdict(offer) for offer in found]}, columns(headers, rows))


def _list_blocks(flags: Flags, of_block: Mapping[str, int | str | None], *, refresh: bool) -> None:
    """Print the blocks of capacity that a provider offers for these flags."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    if refresh:
        raise UsageError("--blocks and --refresh exclude each other", remedy="leave --refresh out")
    keys = {"hours": "block_hours", "start": "block_start"}
    given: Flags = {
        ("cluster", keys.get(name, name)): (f"--{name}", value)
        for name, value in of_block.items()
        if value is not None
    }
    cluster = load_spec(None, (), {**flags, **given}).spec.cluster
    found = app.block_offers(context(), cluster)
    if not found:
        announce(
            f"no block of {cluster.nodes} nodes is offered for {cluster.block_hours} hours; try another "
            "--start, --hours, --instance-types, --nodes or --region"
        )
    rows = [
        (
            offer.block.instance_type,
            offer.block.zone,
            _minute(offer.block.start),
            _minute(offer.block.end),
            price_text(offer.block.upfront_usd),
            price_text(offer.block.node_usd),
        )
        for offer in found
    ]
    headers = ("TYPE", "ZONE", "START (UTC)", "END (UTC)", "PRICE", "NODE/H")
    legend = f"PRICE of all {cluster.nodes} nodes, paid in advance; NODE/H of one node and hour"
    text = f"{columns(headers, rows)}\n{legend}" if found else ""
    emit({"blocks": [_block(offer) for offer in found]}, text)


def _minute(moment: str) -> str:
    """Return a time as the table shows it: the day of the year and the minute."""
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%m-%d %H:%M}"


def _block(offer: BlockOffer) -> dict[str, Any]:
    block = offer.block
    return {
        "offer": offer.identity or None,
        "instance_type": block.instance_type,
        "nodes": block.nodes,
        "zone": block.zone,
        "start": block.start,
        "end": block.end,
        "usable_until": block.usable_until,
        "hours": block.hours,
        "upfront_usd": block.upfront_usd,
        "node_hourly_usd": block.node_usd,
    }


def _gpu_table(machines: Sequence[GpuMachine]) -> str:
    rows = [
        (
            each.provider,
            each.instance_type,
            each.gpus,
            each.gpu_memory_gib,
            each.fabric,
            price_text(each.hourly_usd),
            each.region,
        )
        for each in machines
    ]
    dates = sorted({each.as_of for each in machines if each.as_of is not None})
    since = f", of {dates[0]} to {dates[-1]}" if len(dates) > 1 else "".join(f", of {each}" for each in dates)
    headers = ("CLOUD", "TYPE", "GPUS", "GIB", "FABRIC", "$/H", "CHEAPEST IN")
    return f"{columns(headers, rows)}\nGIB of a GPU; $/H on demand{since}; sources: -o json"


@click.command()
@click.argument("provider", required=False)
@file_option
@cluster_option
@click.option(
    "--smoke", is_flag=True, help="Run a small job that checks every rank and the network between them."
)
@click.option("--launcher", metavar="NAME", help="The launcher of the smoke job.")
@click.option("--image", metavar="REF", help="The smoke job's container image.")
@click.option("--nproc-per-node", type=int, metavar="N", help="The smoke job's processes on each node.")
@click.option(
    "--allow-tcp", is_flag=True, default=None, help="Continue over TCP if the fast transport is not found."
)
@set_option
@output_option
def doctor(
    provider: str | None,
    file: Path | None,
    cluster: str | None,
    settings: tuple[str, ...],
    *,
    smoke: bool,
    **asked: object,
) -> None:
    """Check what `up` needs at PROVIDER, or the health of the cluster that --cluster names.

    \b
    cloudrec doctor aws                      credentials, quotas, offers, leaks
    cloudrec doctor --cluster NAME           nodes, GPUs, cards, add-ons
    cloudrec doctor --cluster NAME --smoke   a small job: ranks, bandwidths
    """  # noqa: D301  # \b is click's mark for lines that are not to be joined
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    flags: Flags = {
        ("cluster", "provider"): ("PROVIDER", provider),
        ("cluster", "name"): ("--cluster", cluster),
        **{("train", name): (f"--{name.replace('_', '-')}", value) for name, value in asked.items()},
    }
    loaded = load_spec(file, settings, flags)
    if smoke:
        findings = app.smoke_run(context(), loaded)
    elif cluster is not None and provider is None:
        up = app.choose(context(), provider_name=None, cluster_name=cluster)
        findings = app.examine(context(), up, loaded.spec.train.env)
    else:
        findings = app.doctor(context(), loaded.spec.cluster)
    _report(findings)


def _report(findings: Sequence[Finding]) -> None:
    """Print findings; PreflightError when one of them blocks."""
    rows = [(finding.check, _mark(finding), finding.found, finding.needed or None) for finding in findings]
    table = wrapped(("CHECK", "RESULT", "FOUND", "NEEDED"), rows, texts=["CHECK", "FOUND", "NEEDED"])
    emit({"findings": [_finding(f) for f in findings]}, table)
    wrong = [finding for finding in findings if not finding.ok]
    for finding in wrong:
        announce(f"{finding.check}: {finding.remedy}")
    blocking = [finding.check for finding in wrong if finding.blocks]
    if blocking:
        raise PreflightError(f"not ready: {', '.join(blocking)}")


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

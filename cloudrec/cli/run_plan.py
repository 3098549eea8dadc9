"""The text and the document of `cloudrec plan`."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from cloudrec.cli.output import columns
from cloudrec.observe.page.plan import plan_page
from cloudrec.planning.fit.memory import GIB, places_of
from cloudrec.planning.fit.offers import best_of_each
from cloudrec.planning.fit.step import HIGH, LOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app import OwnOffer, RunPlan
    from cloudrec.planning.fit.offers import PlannedOffer
    from cloudrec.planning.fit.work import TrainingWork

SHOWN = 15
THIS_MACHINE = "this-machine"
# What runs that were not timed measured, as multiples of the prediction (benchmarks/results/plan-accuracy-*).
OWN_LOW, OWN_HIGH = 0.7, 1.25
_COLUMNS = 80
_MOST_TABLES = 6  # kinds of tables that are shown
_CACHED = 0.2  # the trainer's default of uvm_cache_load_factor
_BASIS = "estimated"
_UNKNOWN = "unknown"
_VERDICTS = {True: "fits", False: "does not fit", None: "may not fit"}


def row(offer: PlannedOffer, number: int | None = None) -> dict[str, Any]:
    """Return one offer as an element of the documented {"offers": [...]}."""
    machine, memory, step = offer.machine, offer.memory, offer.step
    speed = offer.samples_per_s
    return {
        "number": number,
        "provider": machine.provider,
        "region": machine.region,
        "type": machine.instance_type,
        "nodes": offer.nodes,
        "capacity": machine.capacity,
        "gpu": machine.gpu,
        "gpus": machine.gpus * offer.nodes,
        "fits": offer.fits,
        "reason": offer.refusal or None,
        "samples_per_s": speed,
        "samples_per_s_range": None if speed is None else [speed * LOW, speed * HIGH],
        "hours": offer.hours,
        "hours_by_part": offer.hours_by_part or None,
        "usd": offer.usd,
        "usd_by_part": offer.usd_by_part,
        "hourly_usd": offer.hourly_usd,
        "price": machine.price or None,
        "control_plane_price": machine.control_price or None,
        "storage_price": machine.storage_price or None,
        "limited_by": step.limited_by if step else None,
        "basis": _BASIS if step else "unknown",
        "basis_by_figure": {
            "memory_gib": _BASIS,
            "samples_per_s": _BASIS if step else _UNKNOWN,
            "exchange": _links_basis(offer),
            "hours": _BASIS if offer.hours is not None else _UNKNOWN,
            "hourly_usd": _table_basis(machine.price),
            "usd": {name: _usd_basis(offer, name) for name in offer.usd_by_part},
        },
        "memory_gib": {
            "tables": memory.tables,
            "dense": memory.dense,
            "activations": memory.activations,
            "exchange": memory.exchange,
            "reserved": memory.reserved,
            "have": memory.have,
        },
        "step_s": None if step is None else {**step.parts, "total": step.seconds},
    }


def _links_basis(offer: PlannedOffer) -> str:
    measured = offer.measured_links
    if measured is not None:
        nodes = "1 node" if measured.nodes == 1 else f"{measured.nodes} nodes"
        return f"measured on {nodes} of cluster {measured.cluster} on {measured.as_of}"
    return _BASIS if offer.step else _UNKNOWN


def _table_basis(label: str) -> str:
    return f"from a table ({label})" if label else _UNKNOWN


def _usd_basis(offer: PlannedOffer, part: str) -> str:
    machine = offer.machine
    if part == "egress":
        return _UNKNOWN if offer.usd_by_part[part] is None else f"one copy, {machine.traffic_price}"
    labels = {
        "nodes": machine.price,
        "control_plane": machine.control_price,
        "storage": machine.storage_price,
    }
    label = labels.get(part, "")
    known = label and offer.usd_by_part[part] is not None
    return f"estimated hours, {_table_basis(label)}" if known else _UNKNOWN


def own_row(offer: OwnOffer) -> dict[str, Any]:
    """Return what the run would be on this machine as an element of the same list."""
    memory, step = offer.memory, offer.step
    return {
        "number": None,
        "provider": "local",
        "region": "",
        "type": THIS_MACHINE,
        "nodes": 1,
        "ranks": step.ranks,
        "capacity": "on-demand",
        "gpu": None,
        "gpus": 0,
        "cores": offer.cores,
        "fits": not offer.refusal,
        "reason": offer.refusal or None,
        "samples_per_s": step.samples_per_s,
        "samples_per_s_range": [step.samples_per_s * OWN_LOW, step.samples_per_s * OWN_HIGH],
        "hours": offer.hours,
        "usd": None,
        "hourly_usd": None,
        "price": None,
        "limited_by": step.limited_by,
        "basis": f"measured on {offer.as_of}",
        "memory_gib": {
            "tables": memory.tables,
            "dense": memory.dense,
            "activations": memory.activations,
            "exchange": memory.exchange,
            "reserved": memory.reserved,
            "need": memory.need,
            "have": memory.have,
        },
        "step_s": {**step.parts, "total": step.seconds},
    }


def own_explanation(plan: RunPlan) -> str:
    """Return memory and time by part on this machine, for each number of ranks."""
    lines = [_work_line(plan)]
    for each in plan.here:
        memory, step = each.memory, each.step
        parts = [f"{name.replace('_', ' ')} {value * 1e3:.2f}" for name, value in step.parts.items() if value]
        lines += [
            "",
            f"This machine, {_ranks(step.ranks)} on {each.cores} cores, measured on {each.as_of}",
            (
                f"  memory of each rank, in GiB, of {memory.have:.1f}: tables {memory.tables:.2f}, "
                f"dense part {memory.dense:.2f},"
            ),
            (
                f"    activations {memory.activations:.2f}, exchange {memory.exchange:.2f}, libraries "
                f"{memory.reserved:.2f}: {_VERDICTS[memory.fits]}"
            ),
            f"  a step of {step.batch * step.ranks:,} samples, in ms: {step.seconds * 1e3:.1f}",
            *(f"    {', '.join(parts[start : start + 4])}" for start in range(0, len(parts), 4)),
            f"  {step.samples_per_s:,.0f} samples/s, limited by: {step.limited_by.replace('_', ' ')}",
        ]
    return "\n".join(lines)


def _here(plan: RunPlan) -> list[str]:
    lines = []
    for each in plan.here:
        hours = "" if each.hours is None else f", {_short(each.hours, decimals=1)} h"
        found = f"{each.step.samples_per_s:,.0f} samples/s{hours}" if not each.refusal else each.refusal
        lines.append(f"This machine, {_ranks(each.step.ranks)}: {found} (measured on {each.as_of})")
    return [*lines, ""] if lines else []


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def table(plan: RunPlan, offers: Sequence[PlannedOffer], *, everything: bool) -> str:
    """Return the table of numbered offers, with what they are for and what they are based on."""
    shown = offers if everything else offers[:SHOWN]
    several = len({each.machine.capacity for each in offers}) > 1
    header = ["", "MACHINE", *(["CAPACITY"] if several else []), "REGION", "$/H", "M/S", "HOURS", "USD"]
    rows = [_cells(number, each, several=several) for number, each in enumerate(shown, start=1)]
    lines = [_work_line(plan), ""]
    lines.append(columns(header, rows) if rows else _nothing(plan))
    if len(shown) < len(offers):
        lines.append(f"... and {len(offers) - len(shown)} more: --all")
    lines += ["", *_here(plan), *_not_possible(plan)]
    lines.append(f"M/S: million samples a second, estimated; the true value is {LOW:g} to {HIGH:g} times it.")
    lines.append("USD: nodes, control plane and bucket, where the shipped tables have prices;")
    lines.append("traffic out of the region is not in it, since its amount is not known.")
    return "\n".join(lines)


def page(plan: RunPlan, offers: Sequence[PlannedOffer]) -> str:
    """Return the picture of these offers as a page."""
    notes = [
        f"Times are estimated; the true samples/s is {LOW:g} to {HIGH:g} times the figure.",
        "USD: nodes, control plane and bucket, where tables with dates have their prices, without traffic.",
        *_here(plan),
    ]
    return plan_page(offers, title=_work_line(plan), notes=[each for each in notes if each])


def explanation(plan: RunPlan, offers: Sequence[PlannedOffer]) -> str:
    """Return memory and time by part, for each number of nodes of one machine type."""
    lines = [_work_line(plan)]
    for each in offers:
        machine, memory, step = each.machine, each.memory, each.step
        price = "unknown" if each.hourly_usd is None else f"${each.hourly_usd:,.2f}/h"
        lines += [
            "",
            (
                f"{each.nodes} x {machine.instance_type}, {machine.gpus * each.nodes} x {machine.gpu}, "
                f"{machine.region or 'any region'}, {machine.capacity}, {price}"
            ),
            (
                f"  memory of each GPU, in GiB, of {memory.have:.0f}: tables {memory.tables:.1f}, "
                f"dense part {memory.dense:.1f},"
            ),
            (
                f"    activations {memory.activations:.1f}, exchange {memory.exchange:.1f}, "
                f"kept back {memory.reserved:.1f}: {_VERDICTS[memory.fits]}"
            ),
            *_tables(plan.work, each),
        ]
        if each.refusal:
            lines += textwrap.wrap(
                f"not possible: {each.refusal}", _COLUMNS, initial_indent="  ", subsequent_indent="    "
            )
            lines += _cached(each)
        if each.hours_by_part:
            parts = [f"{name} {_short(value)}" for name, value in each.hours_by_part.items()]
            lines.append(f"  hours: {', '.join(parts)}")
        costs = [f"{name.replace('_', ' ')} {_short(value)}" for name, value in each.usd_by_part.items()]
        lines.append(f"  USD of the run: {', '.join(costs)}")
        if step is None:
            lines.append(f"  time: unknown, since the rates of {machine.gpu} are not in the table")
            continue
        lines += [
            (
                f"  a step of {step.batch * step.ranks:,} samples, in ms: dense part {step.dense * 1e3:.1f}, "
                f"tables {step.tables * 1e3:.1f},"
            ),
            (
                f"    exchange {step.exchange * 1e3:.1f}, gradients {step.gradients * 1e3:.1f}; beside "
                f"these: host {step.host * 1e3:.1f}, input {step.input * 1e3:.1f}"
            ),
            f"  {step.samples_per_s / 1e6:.2f} M samples/s, limited by: {step.limited_by}",
        ]
        if each.measured_links is not None:
            lines.append(f"  exchange and gradients: {_links_basis(each)}")
    if any(each.measured_links for each in offers):
        lines += ["", "All other times are estimated from the GPU's data sheet."]
    else:
        lines += ["", "All times are estimated from the GPU's data sheet; nothing was measured on it."]
    return "\n".join(lines)


def _tables(work: TrainingWork, offer: PlannedOffer) -> list[str]:
    """Return the memory by table and by GPU, as lines."""
    ranks = offer.machine.gpus * offer.nodes
    places = places_of(work, ranks=ranks, node=offer.machine.gpus)
    kinds = Counter(
        (rows * work.row_bytes(dim) / GIB, rows, dim, index in places.divided)
        for index, (rows, dim) in enumerate(zip(work.table_rows, work.dims, strict=True))
    )
    lines = []
    for (gib, rows, dim, is_divided), count in sorted(kinds.items(), reverse=True)[:_MOST_TABLES]:
        where = f"divided among {places.group} GPUs" if is_divided else "whole"
        size = f"{gib:,.2f} GiB{' each' if count > 1 else ''}"
        lines.append(f"    {count} of {rows:,} rows x {dim}: {size}, {where}")
    if len(kinds) > _MOST_TABLES:
        rest = sorted(kinds.items(), reverse=True)[_MOST_TABLES:]
        total = sum(gib * count for (gib, *_), count in rest)
        lines.append(f"    {sum(count for _, count in rest)} smaller ones: {total:,.2f} GiB together")
    least, most = min(places.rank_bytes) / GIB, max(places.rank_bytes) / GIB
    share = f"{most:,.2f}" if f"{least:.2f}" == f"{most:.2f}" else f"{least:,.2f} to {most:,.2f}"
    copies = ", a copy on each" if work.placement == "replicated" and ranks > 1 else ""
    return [f"  tables, {share} GiB a GPU{copies}:", *lines]


def _cached(offer: PlannedOffer) -> list[str]:
    """Return what it would take to have the tables in the host's memory, for a run that does not fit."""
    machine, memory = offer.machine, offer.memory
    if memory.fits is not False or memory.need - memory.tables > memory.have:
        return []
    there, cached = memory.tables * machine.gpus, memory.tables * _CACHED
    lacks = 0 < machine.memory_gib < there
    has = f", which has {machine.memory_gib:,.0f}" if lacks else ""
    lines = [
        "  with rows in the host's memory (--compute_kernels fused,fused_uvm_caching):",
        f"    {there:,.1f} GiB of each node's main memory{has}",
    ]
    if not lacks:
        lines[-1] += f", and {cached:,.1f} GiB of each GPU"
        lines.append(f"    to cache {_CACHED:.0%} of the rows; `python -m trainer.plan` plans it")
    return lines


def _cells(number: int, offer: PlannedOffer, *, several: bool) -> list[object]:
    machine = offer.machine
    speed = offer.samples_per_s
    return [
        number,
        f"{offer.nodes} x {machine.instance_type}",
        *([machine.capacity] if several else []),
        machine.region or "-",
        _short(offer.hourly_usd),
        "-" if speed is None else f"{speed / 1e6:.1f}",
        _short(offer.hours, decimals=1),
        _short(offer.usd),
    ]


def _short(value: float | None, decimals: int = 2) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.{decimals}f}"  # noqa: PLR2004 - four digits


def _work_line(plan: RunPlan) -> str:
    work = plan.work
    samples = work.samples_in_all
    trained = "an unknown number of samples" if samples is None else f"{samples:,} samples"
    size = work.table_bytes / 1e9
    dims = sorted(set(work.dims))
    width = f"{dims[0]}" if len(dims) == 1 else f"{dims[0]} to {dims[-1]}"
    assumed = "" if plan.assumes is None else f"\n{plan.assumes[0].upper()}{plan.assumes[1:]}."
    text = (
        f"{trained}; {len(work.table_rows)} tables of {sum(work.table_rows):,} rows x {width} "
        f"({size:,.1f} GB with their optimizer), {work.ids:.4g} ids a sample, a dense part of "
        f"{work.dense.params / 1e6:.1f} M parameters, {work.precision}"
    )
    return f"{textwrap.fill(text, _COLUMNS)}{assumed}"


def _nothing(plan: RunPlan) -> str:
    if not plan.offers:
        return "No cloud is in this plan."
    possible = [each for each in plan.offers if not each.refusal]
    if not possible:
        return "No machine can do this run."
    if all(each.hours is None for each in possible):
        return "No time or cost is known: give the samples of an epoch with --samples."
    least = min((each.usd for each in possible if each.usd is not None), default=None)
    fastest = min(each.hours for each in possible if each.hours is not None)
    cost = "unknown" if least is None else f"${_short(least)}"
    return f"Nothing is within the limits: the least cost is {cost}, the least time {_short(fastest)} h."


def _not_possible(plan: RunPlan) -> list[str]:
    refused = [each for each in best_of_each(plan.offers) if each.refusal]
    done = {each.machine.instance_type for each in plan.offers if not each.refusal}
    refused = [each for each in refused if each.machine.instance_type not in done]
    if not refused:
        return []
    first = refused[0]
    more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    return [f"Not possible: {first.machine.instance_type}{more}: {first.refusal}"]

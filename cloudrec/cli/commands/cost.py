"""The command that shows what clusters and runs have cost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cloudrec.cli.options import context, output_option
from cloudrec.cli.output import columns, emit
from cloudrec.engine.cost import UNKNOWN, price_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cloudrec.app import ClusterCost
    from cloudrec.keeper.meter import CostRow

_HOUR_S = 3600.0
_NO_NODES = "(no nodes)"


@click.command()
@click.argument("name", metavar="[CLUSTER]", required=False)
@click.option(
    "--by",
    type=click.Choice(["cluster", "run", "day", "owner", "pool"]),
    default="cluster",
    show_default=True,
    help="What each line sums up.",
)
@output_option
def cost(name: str | None, by: str) -> None:
    """Show what clusters have cost, also those that were removed.

    The cluster's guard adds up node-seconds at the price of each node. The vendor's bill decides what is
    paid: it also has traffic, stored bytes and requests.
    """
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    found = app.costs(context(), name)
    emit({"clusters": [_document(each) for each in found]}, _text(found, by))


def _text(found: Sequence[ClusterCost], by: str) -> str:
    if not found:
        return "no costs are known"
    groups: dict[str, list[CostRow]] = defaultdict(list)
    for each in found:
        for row in each.rows:
            groups[_KEYS[by](each, row)].append(row)
    rows = [(key, *_sums(of)) for key, of in sorted(groups.items())]
    everything = [row for of in groups.values() for row in of]
    lines = [columns((by.upper(), "NODE-HOURS", "COST"), rows)] if rows else []
    if len(rows) > 1:
        lines.append(f"{_sums(everything)[1]} in all")
    lines += [f"{each.cluster}: {each.problem}" for each in found if each.problem]
    return "\n".join(lines)


def _sums(rows: Iterable[CostRow]) -> tuple[str, str]:
    """Return the node-hours and the cost of some rows."""
    listed = list(rows)
    hours = sum(row.node_s for row in listed if row.pool) / _HOUR_S
    known = sum(row.usd for row in listed if row.usd is not None)
    is_whole = all(row.usd is not None for row in listed)
    return f"{hours:.2f}", price_text(known) if is_whole else f"{price_text(known)} + {UNKNOWN}"


def _document(cost: ClusterCost) -> dict[str, Any]:
    ledger = cost.ledger
    return {
        "cluster": cost.cluster,
        "provider": cost.provider,
        "owner": cost.owner,
        "created": cost.created,
        "removed": cost.is_removed,
        "problem": cost.problem or None,
        "metered_to": ledger.at if ledger is not None else None,
        "usd": ledger.usd if ledger is not None else None,
        "known_usd": ledger.known_usd if ledger is not None else None,
        "unpriced_pools": list(ledger.unpriced) if ledger is not None else [],
        "rows": [asdict(row) for row in cost.rows],
    }


_KEYS: dict[str, Callable[[ClusterCost, CostRow], str]] = {
    "cluster": lambda cost, _: cost.cluster,
    "run": lambda _, row: row.run or "(no run)",
    "day": lambda _, row: row.day,
    "owner": lambda cost, _: cost.owner or "(no owner)",
    "pool": lambda _, row: f"{row.pool} {row.instance_type} {row.capacity}".strip() or _NO_NODES,
}

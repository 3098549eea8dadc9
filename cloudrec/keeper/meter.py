"""What a cluster has cost: node-seconds times the price of each node, by day, pool and run.

The guard advances the ledger in each round and keeps it in its ConfigMap. A node counts from the creation of
its Node object, also of the time before the first round; one that has vanished between two rounds counts half
of the time between them. Time without nodes, such as a stock-out, costs only what has no nodes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cloudrec.errors import DataError
from cloudrec_contract.safe_json import record_of, safe_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SCHEMA = 1
_HOUR_S = 3600.0
_DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Tariff:
    """The price of one node of a pool.

    Attributes:
        pool: the pool's name, as the nodes' label has it; empty for what has no nodes.
        instance_type: the type of its nodes.
        capacity: how they are paid for: on-demand, spot, ...
        hourly_usd: price of one node in USD an hour; None if unknown.
        gpus: GPUs of each node; 0 for nodes that do not train.
    """

    pool: str
    instance_type: str = ""
    capacity: str = ""
    hourly_usd: float | None
    gpus: int = 0


@dataclass(frozen=True, kw_only=True)
class LiveNode:
    """A node that exists at a round.

    Attributes:
        uid: the uid of its Node object.
        pool: the pool in its labels; empty if it has no such label.
        created: creation of its Node object, in seconds since the epoch.
        run: the run whose pods it has; empty for none.
        zone: its zone; empty if it is unknown.
    """

    uid: str
    pool: str
    created: float
    run: str = ""
    zone: str = ""


@dataclass(frozen=True, kw_only=True)
class CostRow:
    """The cost of one pool on one day for one run.

    Attributes:
        day: the day in UTC, ISO 8601.
        pool: the pool; empty for what has no nodes: the control plane, gateways, disks.
        instance_type: the type of its nodes.
        capacity: how they are paid for.
        run: the run; empty for time without one.
        node_s: node-seconds; seconds for what has no nodes.
        usd: what they cost; None if the price is unknown.
    """

    day: str
    pool: str
    instance_type: str
    capacity: str
    run: str
    node_s: float
    usd: float | None


@dataclass(frozen=True, kw_only=True)
class CostLedger:
    """What was metered so far.

    Attributes:
        since: the time from which on costs are counted, in seconds since the epoch.
        at: the time of the last round; `since` before the first.
        seen: the pool and the run of each node of the last round, by uid.
        rows: the costs, one row for each day, pool, run and price list entry.
    """

    since: float
    at: float
    seen: Mapping[str, tuple[str, str]]
    rows: tuple[CostRow, ...] = ()

    @classmethod
    def begun(cls, since: float) -> CostLedger:
        """Return the ledger of a cluster that begins to cost something."""
        return cls(since=since, at=since, seen={})

    @property
    def known_usd(self) -> float:
        """The sum of the known costs."""
        return sum(row.usd for row in self.rows if row.usd is not None)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """The pools with node-seconds of unknown price."""
        return tuple(dict.fromkeys(row.pool for row in self.rows if row.usd is None and row.node_s))

    @property
    def usd(self) -> float | None:
        """The sum; None if a price is unknown."""
        return None if self.unpriced else self.known_usd

    def to_json(self) -> str:
        """Return the ledger as JSON."""
        document = asdict(self)
        return json.dumps({"schema": SCHEMA, **document})

    @classmethod
    def of(cls, text: str) -> CostLedger:
        """Return the ledger from its JSON; DataError if it is invalid."""
        try:
            document = safe_object(text)
            schema = document.pop("schema", None)
            if schema != SCHEMA:
                raise DataError(f"the cost ledger has the schema {schema!r}, not {SCHEMA}")
            made = record_of(cls, document)
            for at in (made.since, made.at):
                datetime.fromtimestamp(at, UTC)
        except (ValueError, OverflowError, OSError) as error:
            raise DataError(f"the cost ledger cannot be read: {error}") from error
        return made


def advance(
    ledger: CostLedger,
    nodes: Sequence[LiveNode],
    tariffs: Iterable[Tariff],
    now: float,
    *,
    ended_at: float | None = None,
) -> CostLedger:
    """Return the ledger with the costs up to now.

    Args:
        ledger: the ledger of the last round.
        nodes: the nodes that exist now.
        tariffs: the prices now. One without a pool is the price of all that has no nodes.
        now: the time, in seconds since the epoch. A clock that was set back changes nothing.
        ended_at: when the cloud ends the nodes, as it was asked to; None for never. Nodes that have vanished
            since the last round counted until then, if that was between the rounds.
    """
    if now < ledger.at:
        return ledger  # a new node would count as seen, and so from `ledger.at` on rather than its creation
    by_pool = {tariff.pool: tariff for tariff in tariffs}
    is_ended = ended_at is not None and ledger.at < ended_at <= now
    vanished_at = ended_at if is_ended and ended_at is not None else ledger.at + (now - ledger.at) / 2
    spans = [_Span(pool=node.pool, run=node.run, start=_start(ledger, node), end=now) for node in nodes]
    alive = {node.uid for node in nodes}
    spans += [
        _Span(pool=pool, run=run, start=ledger.at, end=vanished_at)
        for uid, (pool, run) in ledger.seen.items()
        if uid not in alive
    ]
    if "" in by_pool:
        spans.append(_Span(pool="", run="", start=ledger.at, end=now))
    rows = {_key(row): row for row in ledger.rows}
    for span in spans:
        for day, seconds in _days(span.start, span.end):
            _add(rows, _row(by_pool.get(span.pool), span, day, seconds))
    return replace(
        ledger,
        at=now,
        seen={node.uid: (node.pool, node.run) for node in nodes},
        rows=tuple(rows[key] for key in sorted(rows)),
    )


def rate(nodes: Iterable[LiveNode], tariffs: Iterable[Tariff]) -> float | None:
    """Return what the nodes and the rest cost now, in USD an hour; None if a price is unknown."""
    by_pool = {tariff.pool: tariff.hourly_usd for tariff in tariffs}
    prices = [by_pool.get(node.pool) for node in nodes]
    prices.append(by_pool.get("", 0.0))
    known = [usd for usd in prices if usd is not None]
    return sum(known) if len(known) == len(prices) else None


def most(ledger: CostLedger, nodes: Iterable[LiveNode], tariffs: Sequence[Tariff], count: int) -> float:
    """Return what a cluster costs when no node is missing, in USD an hour.

    Nodes that train can only come back in pools that exist, which are those that have had nodes; before the
    first node, any pool may be created.

    Args:
        ledger: the costs, with the nodes that exist now.
        nodes: the nodes that exist now.
        tariffs: the prices, all known.
        count: the number of nodes that train.
    """
    training = {tariff.pool: tariff.hourly_usd or 0.0 for tariff in tariffs if tariff.gpus}
    used = training.keys() & {row.pool for row in ledger.rows if row.node_s}
    highest = max((training[pool] for pool in used or training), default=0.0)
    others = [node for node in nodes if node.pool not in training]
    return (rate(others, tariffs) or 0.0) + count * highest


@dataclass(frozen=True, kw_only=True)
class _Span:
    """A time for which something costs money, in seconds since the epoch."""

    pool: str
    run: str
    start: float
    end: float


_RowKey = tuple[str, str, str, str, str, bool]


def _start(ledger: CostLedger, node: LiveNode) -> float:
    """Return the time from which on a node is not counted yet."""
    return ledger.at if node.uid in ledger.seen else max(node.created, ledger.since)


def _row(tariff: Tariff | None, span: _Span, day: str, seconds: float) -> CostRow:
    usd = None if tariff is None or tariff.hourly_usd is None else tariff.hourly_usd * seconds / _HOUR_S
    return CostRow(
        day=day,
        pool=span.pool,
        instance_type=tariff.instance_type if tariff else "",
        capacity=tariff.capacity if tariff else "",
        run=span.run,
        node_s=seconds,
        usd=usd,
    )


def _key(row: CostRow) -> _RowKey:
    # A price that becomes known later does not price the time before.
    return (row.day, row.pool, row.instance_type, row.capacity, row.run, row.usd is None)


def _add(rows: dict[_RowKey, CostRow], row: CostRow) -> None:
    before = rows.get(_key(row))
    if before is not None:
        usd = before.usd + row.usd if before.usd is not None and row.usd is not None else None
        row = replace(row, node_s=before.node_s + row.node_s, usd=usd)
    rows[_key(row)] = row


def _days(start: float, end: float) -> Iterator[tuple[str, float]]:
    """Yield each day in UTC that a time has a part of, and the seconds of that part."""
    while start < end:
        moment = datetime.fromtimestamp(start, UTC)
        midnight = datetime(moment.year, moment.month, moment.day, tzinfo=UTC) + _DAY
        until = min(end, midnight.timestamp())
        yield moment.date().isoformat(), until - start
        start = until

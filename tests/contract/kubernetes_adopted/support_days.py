"""Virtual days of a cluster with an end: laptops, the guard and the cloud's alarm, each with its own clock.

The guard's rounds are the shipped ones, against the API server of the stand-in; the laptops compute ends by
the shipped `with_end`. The cloud has one pool and one alarm, as EventBridge Scheduler has it (its user guide,
"Schedule types"): it calls once, within a minute by the cloud's clock, and a new end enables it again.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cloudrec.app.money.lifetime import Past, check_end, with_end
from cloudrec.engine.cost import Cost
from cloudrec.errors import CloudrecError, PreflightError, SpecError, UsageError
from cloudrec.keeper.guard import Guard
from cloudrec.keeper.note import NAME, NOTE, Note
from cloudrec.kubernetes.client.client import Kube
from cloudrec.providers.base.protocol import Halt
from cloudrec.spec.models import ClusterSpec
from tests.conformance.support_clouds import Cloud

BEGIN = datetime(2027, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ROUND = timedelta(minutes=2)  # between two rounds of the guard
SETTLE = timedelta(minutes=5)  # the guard does not repeat a scaling for so long
QUIET = timedelta(hours=4)  # between two rounds of the guard while nothing can happen
SKEW_S = 3 * 3600.0
DAY = 24 * 60  # minutes


class Killed(BaseException):
    """The death of the keeper's process: no handler of errors catches it."""


@dataclass
class Order:
    """An `up` in progress: its end, and which of its two writes are still to come."""

    cluster: ClusterSpec
    at: datetime
    steps: list[str]


@dataclass
class Days:
    """A world in which time passes by the minute.

    Attributes:
        cloud: the stand-in of Kubernetes.
        kube: a client of it.
        namespace: the namespace of the guard.
        seed: of everything that happens.
    """

    cloud: Cloud
    kube: Kube
    namespace: str
    seed: int
    now: datetime = BEGIN  # the true time
    nodes: int = 0
    since: datetime = BEGIN  # the creation of the newest node
    counts: Counter[str] = field(default_factory=Counter)
    late: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - made events
        self.alarm: datetime | None = None  # the end of the cloud's enabled alarm
        self.fired: datetime | None = None
        self.ordered: datetime | None = None  # the end in the guard's orders
        self.title = ClusterSpec(name="conformance", provider="aws", ttl="8h")
        self.pasts: dict[str, Past] = {}
        self.kept = ""  # the end in the cloud's tags
        self.orders: list[Order] = []
        self.cloud_skew = self.keeper_skew = timedelta()
        self.is_up = self.is_reached = self.has_cloud = True
        self.can_halt_from = self.orders_from = self.up_from = BEGIN
        self.halted: datetime | None = None
        self.next_round = BEGIN
        self.dies_in: str = ""
        first = Note(cluster=self.title.model_copy(update={"expires": None}))
        data = {NOTE: first.to_json()}
        meta = {"name": NAME, "namespace": namespace} if (namespace := self.namespace) else {}
        self.kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})

    @property
    def keeper_now(self) -> datetime:
        """The keeper's clock."""
        return self.now + self.keeper_skew

    @property
    def cloud_now(self) -> datetime:
        """The cloud's clock."""
        return self.now + self.cloud_skew

    def pass_days(self, days: int) -> None:
        """Let days pass."""
        for _ in range(days * DAY):
            self.now += MINUTE
            self._events()
            self._laptops()
            self._alarm()
            if self.is_up and self.now >= self.next_round:
                self._round()
            self._judge()
        self.counts["days"] += days

    def _skew(self) -> timedelta:
        kind = self.chance.random()
        most = 5.0 if kind < 0.4 else 300.0 if kind < 0.7 else SKEW_S
        return timedelta(seconds=self.chance.uniform(-most, most))

    def _a_day(self, times: float) -> bool:
        return self.chance.random() < times / DAY

    def _events(self) -> None:
        if self._a_day(2.5):
            self._order()
        if self._a_day(0.5):
            self.cloud_skew = self._skew()
            self.counts["skews"] += 1
        if self._a_day(0.5):
            self.keeper_skew = self._skew()
            self.counts["skews"] += 1
            self.up_from = self.next_round = self.now
        if self.is_up and self._a_day(1):
            self.dies_in = self.chance.choice(("round", "before the halt", "after the halt"))
            self.counts["kills"] += 1
            if self.dies_in == "round":
                self.is_up, self.dies_in = False, ""
        elif not self.is_up and self._a_day(24):
            self.is_up, self.up_from, self.next_round = True, self.now, self.now
            self.keeper_skew = self._skew()  # it starts on any node
        if self._a_day(0.7 if self.is_reached else 20):
            self.is_reached = not self.is_reached
            refused = {"kind": "error", "code": "Forbidden", "message": "an outage", "status": 403}
            faults = [{**refused, "service": "core", "action": "get configmaps", "times": 1_000_000}]
            self.cloud.control(faults=[] if self.is_reached else faults)
            self.up_from, self.next_round = self.now, self.now
            self.counts["outages"] += not self.is_reached
        if self._a_day(0.7 if self.has_cloud else 20):
            self.has_cloud = not self.has_cloud
            self.up_from, self.next_round = self.now, self.now
            self.counts["outages"] += not self.has_cloud
        # A user scales the pool by hand, often soon after its end.
        is_ended = self.halted is not None and self.now - self.halted < 15 * MINUTE
        if self._a_day(30 if is_ended else 0.5) and not self.orders:
            self._make(1)
            self.counts["by hand"] += 1

    def _order(self) -> None:
        """Begin an `up` of one of two laptops: it renews the end, shortens it, or repeats the request."""
        laptop, local = self.chance.choice("ab"), self.now + self._skew()
        past = self.pasts.get(laptop)
        kind = self.chance.choice(("ttl", "expires", "sooner", "again"))
        update: dict[str, str | None] = {"ttl": None, "expires": None}
        if kind == "ttl":
            update["ttl"] = f"{self.chance.randint(1, 16)}h"
        elif kind != "again":
            moment = local + timedelta(minutes=self.chance.randint(1, 900 if kind == "expires" else 90))
            update["expires"] = f"{moment:%Y-%m-%dT%H:%M:%SZ}"
        asked = self.title.model_copy(update=update)
        try:
            check_end(asked, local)
            made = with_end(asked, cost=Cost(), past=past, tagged=self.kept, now=local)
        except (UsageError, SpecError):
            self.counts["refused"] += 1
            return
        if made.expires is None:
            return
        before = past.cluster.expires if past else self.kept
        self.counts["shortened" if before and made.expires < before else "renewed"] += 1
        self.pasts[laptop] = Past(cluster=made, cost=Cost())
        steps = ["alarm", "orders", "nodes"]
        del steps[self.chance.choice((3, 3, 3, 3, 1, 2)) :]  # an `up` that is killed
        self.orders.append(Order(made, self.now + MINUTE, steps))

    def _laptops(self) -> None:
        """Make the next call of each `up` whose time has come; two of them come in any order."""
        self.chance.shuffle(self.orders)
        for order in [each for each in self.orders if each.at <= self.now]:
            step = order.steps[0]
            expires = datetime.fromisoformat(order.cluster.expires or "")
            if not (self.has_cloud if step != "orders" else self.is_reached):
                order.at = self.now + timedelta(minutes=5)
                continue
            if step == "alarm":
                self.alarm, self.fired, self.kept = expires, None, order.cluster.expires or ""
            elif step == "orders":
                data = {"data": {NOTE: Note(cluster=order.cluster).to_json()}}
                self.kube.patch("ConfigMap", NAME, data, namespace=self.namespace)
                self.ordered, self.orders_from, self.next_round = expires, self.now, self.now + ROUND
            elif self.alarm is not None and self.cloud_now < self.alarm:
                self._make(2)
            order.steps.pop(0)
            order.at = self.now + self.chance.randint(1, 15) * MINUTE
        self.orders = [each for each in self.orders if each.steps]

    def _make(self, nodes: int) -> None:
        if nodes != self.nodes:
            self.nodes, self.since = nodes, self.now
        self.next_round = min(self.next_round, self.now + ROUND)

    def _alarm(self) -> None:
        if self.alarm is not None and self.fired is None and self.cloud_now >= self.alarm:
            self.fired = self.now
            self._ended("by the alarm")

    def _ended(self, how: str) -> None:
        if self.nodes:
            self.counts[how] += 1
        self.nodes = 0

    def _halt(self, _cluster: ClusterSpec) -> Halt:
        if self.dies_in == "before the halt":
            raise Killed
        if not self.has_cloud:
            raise PreflightError("the cloud does not answer")
        if self.ordered is None or self.keeper_now < self.ordered:
            self.late.append(f"{self.now}: the keeper ends nodes before the end {self.ordered}")
        pools = ("gpu",) if self.nodes else ()
        self._ended("by the keeper")
        if pools:
            self.halted = self.now
        if self.dies_in == "after the halt":
            raise Killed
        return Halt(pools=pools)

    def _round(self) -> None:
        guard = Guard(
            kube=self.kube,
            namespace=self.namespace,
            halt=self._halt,
            now=lambda: self.keeper_now,
            report=self.said.append,
        )
        self.counts["rounds"] += 1
        try:
            guard.round()
        except Killed:
            self.is_up, self.dies_in = False, ""
        except CloudrecError:
            self.counts["failed rounds"] += 1
        self.said.clear()
        over = self.ordered is not None and self.keeper_now >= self.ordered
        left = self.ordered - self.keeper_now if self.ordered and not over else QUIET
        # Between two rounds nothing is due: the rounds that are left out would change nothing.
        pause = ROUND if over and self.nodes else min(max(left, ROUND), QUIET)
        self.next_round = self.now + pause

    def _judge(self) -> None:
        """Count a minute of GPU nodes that one of the two lines should have ended."""
        if not self.nodes:
            return
        if self.alarm is not None and self.since < (self.fired or self.now) <= self.now - ROUND:
            self._past("the alarm", self.alarm)
        if self.alarm is not None and self.fired is None and self.cloud_now >= self.alarm + ROUND:
            self._past("the alarm", self.alarm)
        if self.ordered is None or not (self.is_up and self.is_reached and self.has_cloud):
            return
        end = self.ordered - self.keeper_skew
        begin = max(end, self.since, self.up_from, self.orders_from)
        if self.halted is not None and self.halted > self.orders_from:
            begin = max(begin, min(self.halted + SETTLE, self.now))
        if self.now > begin + ROUND:
            self._past("the keeper", self.ordered)

    def _past(self, line: str, end: datetime) -> None:
        self.counts["minutes past an end"] += 1
        if len(self.late) < 20:
            skew = f"{self.keeper_skew.total_seconds():.0f} s, {self.cloud_skew.total_seconds():.0f} s"
            self.late.append(f"{self.now}: {line} has not ended {self.nodes} nodes at {end}; skews {skew}")

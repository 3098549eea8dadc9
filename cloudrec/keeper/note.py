"""The guard's orders: what `up` writes into the guard's ConfigMap, apart from the guard itself.

Commands read and write the orders; they need nothing of what the guard does in the cluster.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta

from cloudrec.errors import UsageError
from cloudrec.keeper.ends import LONGEST_H, TOO_LATE, Metered, is_movable, money_end
from cloudrec.keeper.meter import Tariff  # noqa: TC001 - record_of reads the annotations
from cloudrec.spec.models import ClusterSpec, NotifySpec
from cloudrec_contract.safe_json import aware_time, record_of, safe_object

NAME = "cloudrec-guard"  # the name of all of the guard's objects
# The keys of its ConfigMap: its orders, what it did, and what the cluster has cost.
NOTE, RECORD, METER = "guard.json", "state.json", "costs.json"
OUTBOX, ASKED = "notify.json", "notify-test"  # the notifications, and a test that a user has requested
# The variables in which its pod has the secrets of notifications, by their keys in `notify`.
VARIABLES = {key: f"CLOUDREC_SECRET_{key.upper()}" for key in ("webhook", "slack", "smtp_password")}


@dataclass(frozen=True, kw_only=True)
class Note:
    """The guard's orders.

    Attributes:
        cluster: the cluster's spec for a provider that runs in the cluster.
        hourly_usd: its price in USD an hour; None if unknown.
        began: when it began to cost that, ISO 8601; empty if unknown.
        pool_label: the label by which the cloud names a node's pool; empty if costs are not metered.
        tariffs: the prices of a node of each pool, and of all that has no nodes.
        notify: who is notified what happens; None for no one.
        storage: URI of the storage of the runs; empty if it is not known.
    """

    cluster: ClusterSpec
    hourly_usd: float | None = None
    began: str = ""
    pool_label: str = ""
    tariffs: tuple[Tariff, ...] = ()
    notify: NotifySpec | None = None
    storage: str = ""

    def end(self, metered: Metered | None = None, *, kept: str = "", moves: bool = False) -> datetime | None:
        """Return the cluster's end: the expiry that `up` wrote, or the time when the budget is spent.

        Args:
            metered: what was spent so far, and the price now; None if it is not known.
            kept: the end that the cloud keeps; empty for the expiry that `up` wrote.
            moves: whether the guard can move the cloud's end.
        """
        if metered is not None and moves and is_movable(self.cluster):
            # An end that has passed in the cloud, as while no guard ran, holds until `up` renews it: the
            # cloud has ended the nodes, and may have no further end for new ones.
            if kept and datetime.fromisoformat(kept) + TOO_LATE < metered.at:
                return datetime.fromisoformat(kept)
            return money_end(self.cluster, metered, metered.hourly_usd)
        expires = kept or self.cluster.expires
        ends = [datetime.fromisoformat(expires)] if expires else []
        if self.cluster.budget_usd is not None and metered is not None:
            spent = money_end(self.cluster, metered, metered.hourly_usd)
            ends += [spent] if spent is not None else []
        elif self.cluster.budget_usd is not None and self.hourly_usd and self.began:
            hours = min(self.cluster.budget_usd / self.hourly_usd, LONGEST_H)
            ends.append(datetime.fromisoformat(self.began) + timedelta(hours=hours))
        return min(ends, default=None)

    def to_json(self) -> str:
        """Return the orders as the ConfigMap holds them."""
        # The guard's image may be of an earlier version, which rejects unknown keys.
        unread = {"access", "base_image", "package_index", "max_hourly_usd", "allow_tcp"}
        unread |= {"block", "block_hours", "block_start", "notify", "metrics", "metrics_port"}
        if self.cluster.end_limit is None:
            unread.add("end_limit")
        if self.cluster.autostop is None:
            unread.add("autostop")
        if not self.cluster.managed:
            unread.add("managed")
        if self.cluster.storage_of is None:
            unread |= {"storage_of", "storage"}
        cluster = self.cluster.model_dump(mode="json", exclude=unread)
        if self.cluster.storage is not None and not self.cluster.storage.account:
            del cluster["storage"]["account"]
        return json.dumps(
            {
                "cluster": cluster,
                "hourly_usd": self.hourly_usd,
                "began": self.began,
                "pool_label": self.pool_label,
                "tariffs": [asdict(tariff) for tariff in self.tariffs],
                **({"storage": self.storage} if self.storage else {}),
                **({"notify": self.notify.model_dump(mode="json")} if self.notify is not None else {}),
            }
        )

    @classmethod
    def of(cls, text: str) -> Note:
        """Return the orders from the ConfigMap's text; UsageError if it is invalid."""
        try:
            document = safe_object(text)
            cluster = ClusterSpec.model_validate(document["cluster"])
            prices = record_of(_Prices, {name: document[name] for name in _PRICES if name in document})
            prices.check()
            return cls(
                cluster=cluster,
                hourly_usd=prices.hourly_usd or None,  # older versions wrote 0 for an unknown price
                began=prices.began,
                pool_label=prices.pool_label,
                tariffs=prices.tariffs,
                notify=_notify(document.get("notify")),
                storage=prices.storage,
            )
        except (ValueError, KeyError) as error:
            raise UsageError(
                f"the guard's note cannot be read: {error}", remedy="`cloudrec up` writes it again"
            ) from error


@dataclass(frozen=True, kw_only=True)
class _Prices:
    """The part of the orders' text that is not of a model. Versions before 0.3 did not meter."""

    hourly_usd: float | None
    began: str
    pool_label: str = ""
    tariffs: tuple[Tariff, ...] = ()
    storage: str = ""

    def check(self) -> None:
        """Raise ValueError for a negative price, or a time without an offset from UTC."""
        if (self.hourly_usd or 0.0) < 0:
            raise ValueError(f"the price is {self.hourly_usd} USD an hour")
        if self.began:
            aware_time(self.began)


_PRICES = tuple(each.name for each in fields(_Prices))


def _notify(document: object) -> NotifySpec | None:
    """Return who is notified; None for no one, or if a newer version wrote it: the end counts even so."""
    try:
        return NotifySpec.model_validate(document) if document else None
    except ValueError:
        return None

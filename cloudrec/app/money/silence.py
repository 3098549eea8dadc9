"""The guard or keeper of a cluster that is silent: nothing in the cluster enforces its end then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.keeper.note import NAME

if TYPE_CHECKING:
    from cloudrec.app.money.kept import ClusterCost

# Two rounds of the guard, of two minutes each, and a minute for slow ones. The keeper's rounds are shorter,
# but one may wait as long for a cloud.
SILENT_S = 300.0
# By so much a round may be later than this machine's time, since clocks differ by seconds.
SKEW_S = 120.0
_MINUTE_S = 60.0


def silence(cost: ClusterCost, now: float) -> str:
    """Return a warning if a cluster's guard or keeper missed two rounds; empty if it did not.

    A round in the future is a warning, too: by this machine's clock, no silence would be noticed for so long.

    Args:
        cost: as read of its meter, which each round writes; of one that was not read, nothing is known.
        now: in seconds since the epoch.
    """
    last = cost.created if cost.round_at is None else cost.round_at
    if not cost.is_read or last is None:
        return ""
    if cost.round_at is not None and cost.round_at - now > SKEW_S:
        return (
            f"its guard's clock is {(cost.round_at - now) / _MINUTE_S:,.0f} minutes ahead of this machine's: "
            "ends that are computed here come earlier by that, and a silent guard is noticed later. Set this "
            "machine's clock; if it is right, the guard's node has the wrong one"
        )
    if now - last <= SILENT_S:
        return ""
    since = f"{(now - last) / _MINUTE_S:,.0f} minutes"
    said = f"has not reported once in {since}" if cost.round_at is None else f"has not reported for {since}"
    return (
        f"its guard {said}: nothing in the cluster may enforce the end and the budget. `kubectl get pods -A` "
        f"shows {NAME}; `cloudrec up` puts it back, `cloudrec down` ends all cost"
    )

"""When Google has nodes for a fixed time: the advice of calendar mode.

Source: google-cloud-compute's AdviceClient.calendar_mode; "About future reservation requests in calendar
mode". Google sells these nodes as future reservations, which it approves: cloudrec searches them, and uses
the reservation that was made of one (`cluster.settings.reservation`). The advice has no price.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.providers.base.capacity.blocks import BlockOffer, hours_of, in_order, is_wanted
from cloudrec.providers.gcp.api import ids, sdk
from cloudrec.spec.models import BlockSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.spec.models import ClusterSpec

_SPEC = "nodes"  # the name of our part of a request
_SHORTEST_H, _LONGEST_H = 24, 90 * 24
_AHEAD = timedelta(days=120)
_SOONEST = timedelta(days=1)


def offers(gcp: Gcp, cluster: ClusterSpec, instance_types: Sequence[str], now: datetime) -> list[BlockOffer]:
    """Return the earliest time for each machine type, the earliest first.

    Raises:
        SpecError: Google reserves no nodes for this length or from this start.
    """
    hours = hours_of(cluster)
    if not _SHORTEST_H <= hours <= _LONGEST_H:
        raise SpecError(
            f"cluster.block_hours is {hours}; Google reserves GPU nodes for {_SHORTEST_H} to {_LONGEST_H} "
            "hours in calendar mode",
            remedy=f"give a length within that, such as --hours {min(max(hours, _SHORTEST_H), _LONGEST_H)}",
        )
    first = datetime.fromisoformat(cluster.block_start) if cluster.block_start else now + _SOONEST
    last = now + _AHEAD - timedelta(minutes=1)  # its clock may be ahead
    if first > last:
        raise SpecError(
            f"cluster.block_start is {cluster.block_start}; Google plans {_AHEAD.days} days ahead",
            remedy="give an earlier start (--start)",
        )
    found = [_offer(gcp, cluster, name, (first, last)) for name in instance_types]
    return in_order([offer for offer in found if offer is not None and is_wanted(offer, cluster)])


def _offer(
    gcp: Gcp, cluster: ClusterSpec, machine_type: str, starts: tuple[datetime, datetime]
) -> BlockOffer | None:
    of, hours = sdk.compute, hours_of(cluster)
    spec = of.FutureResourcesSpec(
        target_resources=of.FutureResourcesSpecTargetResources(
            specific_sku_resources=of.FutureResourcesSpecSpecificSKUResources(
                machine_type=machine_type, instance_count=cluster.nodes
            )
        ),
        time_range_spec=of.FlexibleTimeRange(
            start_time_not_earlier_than=_written(starts[0]),
            start_time_not_later_than=_written(starts[1]),
            min_duration=f"{hours * 3600}s",
            max_duration=f"{hours * 3600}s",
        ),
    )
    if cluster.zones:
        spec.location_policy = of.FutureResourcesSpecLocationPolicy(
            locations={
                f"zones/{zone}": of.FutureResourcesSpecLocationPolicyLocation(
                    preference="ALLOW" if zone in cluster.zones else "DENY"
                )
                for zone in gcp.zones
            }
        )
    request = of.CalendarModeAdviceRpcRequest(
        project=gcp.project,
        region=gcp.region,
        calendar_mode_advice_request_resource=of.CalendarModeAdviceRequest(
            future_resources_specs={_SPEC: spec}
        ),
    )
    answer = gcp.read(gcp.rest(of.AdviceClient).calendar_mode, request)
    for row in answer.recommendations:
        advice = row.recommendations_per_spec[_SPEC]
        if advice.location:
            return BlockOffer(
                identity=advice.recommendation_id,
                block=BlockSpec(
                    instance_type=machine_type,
                    nodes=cluster.nodes,
                    zone=ids.name(advice.location),
                    start=advice.start_time,
                    end=advice.end_time,
                    usable_until=advice.end_time,
                ),
            )
    return None


def _written(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

"""Nodes for a fixed time: the advice of calendar mode, and the future reservation that is made of it.

Sources: google-cloud-compute's AdviceClient.calendar_mode and FutureReservation; "About future reservation
requests in calendar mode" and "Create a future reservation request in calendar mode". Google approves a
request, makes a reservation of it that nodes use by its name, and ends these at the end time.
The advice has no price.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from cloudrec.engine.graph import ErrorVerdict
from cloudrec.errors import CloudrecError, NoCapacityError, SpecError
from cloudrec.providers.base.capacity.blocks import BlockOffer, hours_of, in_order, is_wanted
from cloudrec.providers.gcp import errors
from cloudrec.providers.gcp.api import ids, operations, sdk
from cloudrec.spec.models import BlockSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.spec.models import ClusterSpec

_SPEC = "nodes"  # the name of our part of a request
_SHORTEST_H, _LONGEST_H = 24, 90 * 24
_AHEAD = timedelta(days=120)
_SOONEST = timedelta(days=1)
_MOST_NODES = 80  # of machines with GPUs in one request
_LONGEST = 54  # of a name without its random part; Compute Engine allows 63
_MARK = "cloudrec-block:"  # in the description of a request, before the cluster's name: it has no labels
_POLL_S, _REVIEW_S = 5.0, 900.0
_ENDED = frozenset({"CANCELLED", "DECLINED", "FAILED"})
_REVIEWED = frozenset({"DRAFTING", "PENDING_APPROVAL", "PENDING_AMENDMENT_APPROVAL", ""})
_FULFILLED = frozenset({"FULFILLED", "FAILED_PARTIALLY_FULFILLED"})


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
    if cluster.nodes > _MOST_NODES:
        raise SpecError(
            f"cluster.nodes is {cluster.nodes}; Google reserves at most {_MOST_NODES} nodes in one request",
            remedy=f"use {_MOST_NODES} nodes or fewer (--nodes {_MOST_NODES})",
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


def of_cluster(gcp: Gcp, cluster: ClusterSpec, now: datetime) -> BlockSpec | None:
    """Return the newest block that was requested for the cluster and has not ended; None for none."""
    request = sdk.compute.AggregatedListFutureReservationsRequest(project=gcp.project)
    scopes = gcp.rows(gcp.rest(sdk.compute.FutureReservationsClient).aggregated_list, request)
    mine = [
        row
        for _, listed in scopes
        for row in listed.future_reservations
        if row.description == f"{_MARK}{cluster.title}"
        and row.status.procurement_status not in _ENDED
        and datetime.fromisoformat(row.time_window.end_time) > now
    ]
    newest = max(mine, key=lambda row: row.creation_timestamp, default=None)
    return None if newest is None else _block(newest)


def buy(gcp: Gcp, cluster: ClusterSpec, offer: BlockOffer) -> BlockSpec:
    """Request an offered block, and wait until Google has approved it.

    Raises:
        NoCapacityError: Google declines it.
        CloudrecError: the response was lost: Google may have the request.
    """
    of, block = sdk.compute, offer.block
    # A name like those of the cluster's resources would make the block of a removed cluster an orphaned one.
    name = f"block-{cluster.title}"[:_LONGEST].rstrip("-") + f"-{uuid4().hex[:8]}"
    wanted = of.FutureReservation(
        name=name,
        description=f"{_MARK}{cluster.title}",
        reservation_name=name,
        reservation_mode="CALENDAR",
        deployment_type="DENSE",
        planning_status="SUBMITTED",
        specific_reservation_required=True,
        auto_delete_auto_created_reservations=True,
        time_window=of.FutureReservationTimeWindow(start_time=block.start, end_time=block.end),
        specific_sku_properties=of.FutureReservationSpecificSKUProperties(
            total_count=block.nodes,
            instance_properties=of.AllocationSpecificSKUAllocationReservedInstanceProperties(
                machine_type=block.instance_type
            ),
        ),
    )
    request = of.InsertFutureReservationRequest(
        project=gcp.project, zone=block.zone, future_reservation_resource=wanted, request_id=str(uuid4())
    )
    client = gcp.rest(of.FutureReservationsClient)
    try:
        begun = operations.of_compute(gcp.call(client.insert_unary, request))
    except errors.REFUSALS as error:
        if errors.verdict(error, gcp.fresh) is ErrorVerdict.LOST:
            raise CloudrecError(
                f"the response to the request of {name} was lost: Google may have it",
                remedy="wait a minute and run the same command again: it uses a block that was requested, "
                "and asks before it requests one",
            ) from error
        raise
    while not (progress := operations.look(gcp, begun)).is_done:
        gcp.clock.sleep(_POLL_S)
    if progress.error is not None:
        raise progress.error
    return _approved(gcp, block.zone, name)


def _approved(gcp: Gcp, zone: str, name: str) -> BlockSpec:
    """Return a request once Google has approved it; as it is if that takes longer than usual."""
    client = gcp.rest(sdk.compute.FutureReservationsClient)
    read = sdk.compute.GetFutureReservationRequest(project=gcp.project, zone=zone, future_reservation=name)
    until = gcp.clock.now() + gcp.clock.limit(_REVIEW_S)
    row = gcp.read(client.get, read)
    while row.status.procurement_status in _REVIEWED and gcp.clock.now() < until:
        gcp.clock.sleep(_POLL_S)
        row = gcp.read(client.get, read)
    if row.status.procurement_status in _ENDED:
        raise NoCapacityError(
            f"Google has not approved the block {name} ({row.status.procurement_status}); it costs nothing",
            remedy="try another start (--start), length (--hours), number (--nodes) or type "
            "(--instance-types)",
        )
    return _block(row)


def _block(row: sdk.compute.FutureReservation) -> BlockSpec:
    asked, status = row.specific_sku_properties, row.status.procurement_status
    is_partial = status == "FAILED_PARTIALLY_FULFILLED"
    return BlockSpec(
        id=row.reservation_name or row.name,
        instance_type=ids.name(asked.instance_properties.machine_type),
        nodes=row.status.fulfilled_count if is_partial else asked.total_count,
        zone=ids.name(row.zone),
        start=row.time_window.start_time,
        end=row.time_window.end_time,
        usable_until=row.time_window.end_time,
        is_active=status in _FULFILLED,
    )


def _written(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

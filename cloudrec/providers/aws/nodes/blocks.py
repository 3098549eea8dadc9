"""Capacity Blocks for ML: search, purchase, and the block that a cluster has.

Sources: botocore's model of EC2; EC2's user guide, "Find and purchase Capacity Blocks"; EKS's user guide,
"Use Capacity Blocks for ML with managed node groups". A block is a capacity reservation. EC2 ends its
instances 30 minutes before the block ends, and EKS drains them from 40 minutes before.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from cloudrec.engine.graph import ErrorVerdict
from cloudrec.errors import CloudrecError, NoCapacityError, PreflightError, SpecError
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api.driver import as_map
from cloudrec.providers.aws.settings import settings_of
from cloudrec.providers.base.capacity.blocks import BlockOffer, hours_of, in_order, is_wanted
from cloudrec.spec.models import BlockSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from types_boto3_ec2.type_defs import (
        CapacityBlockOfferingTypeDef,
        CapacityReservationTypeDef,
        DescribeCapacityBlockOfferingsRequestPaginateTypeDef,
        TagSpecificationTypeDef,
        TagTypeDef,
    )

    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.spec.models import ClusterSpec

# On a block: the cluster that it was bought for, and its price, which no call of EC2 shows later. The tag of
# the cluster's resources would make a removed cluster's block an orphaned resource, although it ends itself.
TAG_BLOCK, TAG_USD = "cloudrec-block", "cloudrec-block-usd"
_LEAD = timedelta(minutes=40)
_MOST_NODES = 64
_DAY_H, _WEEK_H, _DAILY_H = 24, 7 * 24, 14 * 24
_ENDED = frozenset({"expired", "cancelled", "failed", "payment-failed", "unsupported", "unavailable"})
_USD = "USD"


def offers(aws: Aws, cluster: ClusterSpec, instance_types: Sequence[str]) -> list[BlockOffer]:
    """Return the offers for the spec, the earliest first.

    Raises:
        SpecError: AWS sells no block of this number of nodes or of this length.
    """
    hours = hours_of(cluster)
    is_whole = hours % _DAY_H == 0 if hours <= _DAILY_H else hours % _WEEK_H == 0
    if not is_whole:
        raise SpecError(
            f"cluster.block_hours is {hours}; AWS sells Capacity Blocks of 1 to 14 days, and then of whole "
            "weeks up to 26",
            remedy=f"give {_rounded(hours)} (--hours {_rounded(hours)})",
        )
    if cluster.nodes > _MOST_NODES:
        raise SpecError(
            f"cluster.nodes is {cluster.nodes}; a Capacity Block has at most {_MOST_NODES} nodes",
            remedy=f"use {_MOST_NODES} nodes or fewer (--nodes {_MOST_NODES})",
        )
    found: list[BlockOffer] = []
    for name in instance_types:
        wanted: DescribeCapacityBlockOfferingsRequestPaginateTypeDef = {
            "InstanceType": name,
            "InstanceCount": cluster.nodes,
            "CapacityDurationHours": hours,
        }
        if cluster.block_start is not None:
            wanted["StartDateRange"] = datetime.fromisoformat(cluster.block_start)
        pages = aws.ec2.get_paginator("describe_capacity_block_offerings").paginate
        rows = aws.rows(pages, lambda page: page.get("CapacityBlockOfferings"), **wanted)
        found += [_offer(row) for row in rows]
    return in_order([offer for offer in found if is_wanted(offer, cluster)])


def _rounded(hours: int) -> int:
    step = _DAY_H if hours <= _DAILY_H else _WEEK_H
    return -(-hours // step) * step


def _offer(row: CapacityBlockOfferingTypeDef) -> BlockOffer:
    # A price in another currency is not known in USD.
    fee = row.get("UpfrontFee") if row.get("CurrencyCode", _USD) == _USD else None
    return BlockOffer(
        identity=row["CapacityBlockOfferingId"],
        block=BlockSpec(
            instance_type=row["InstanceType"],
            nodes=row["InstanceCount"],
            zone=row["AvailabilityZone"],
            start=_written(row["StartDate"]),
            end=_written(row["EndDate"]),
            usable_until=_written(row["EndDate"] - _LEAD),
            upfront_usd=float(fee) if fee else None,
        ),
    )


def of_cluster(aws: Aws, cluster: ClusterSpec) -> BlockSpec | None:
    """Return the block that the settings name, or else the newest that was bought for the cluster.

    Raises:
        PreflightError: the named one does not exist or has ended.
    """
    named = settings_of(cluster).capacity_block_id
    rows = [row for row in _reservations(aws) if row.get("ReservationType") == "capacity-block"]
    if named:
        row = next((row for row in rows if row["CapacityReservationId"] == named), None)
        state: str = row["State"] if row is not None else "not found"
        if row is None or state in _ENDED:
            raise PreflightError(
                f"capacity reservation {named}: {state}; needed: a Capacity Block that has not ended",
                remedy="name another one (--set cluster.settings.capacity_block_id=...), or buy one with "
                "--capacity block --hours 48",
            )
        return _block(row)
    mine = [
        row
        for row in rows
        if as_map(row.get("Tags")).get(TAG_BLOCK) == cluster.title and row["State"] not in _ENDED
    ]
    newest = max(mine, key=lambda row: row["CreateDate"], default=None)
    return None if newest is None else _block(newest)


def _reservations(aws: Aws) -> list[CapacityReservationTypeDef]:
    # EC2 lists no filter by tag for reservations.
    pages = aws.ec2.get_paginator("describe_capacity_reservations").paginate
    return aws.rows(pages, lambda page: page.get("CapacityReservations"))


def _block(row: CapacityReservationTypeDef) -> BlockSpec:
    usd = as_map(row.get("Tags")).get(TAG_USD)
    return BlockSpec(
        id=row["CapacityReservationId"],
        instance_type=row["InstanceType"],
        nodes=row["TotalInstanceCount"],
        zone=row["AvailabilityZone"],
        start=_written(row["StartDate"]),
        end=_written(row["EndDate"]),
        usable_until=_written(row["EndDate"] - _LEAD),
        is_active=row["State"] == "active",
        upfront_usd=float(usd) if usd else None,
    )


def buy(aws: Aws, cluster: ClusterSpec, offer: BlockOffer) -> BlockSpec:
    """Buy an offered block.

    Raises:
        NoCapacityError: the offer is gone.
        CloudrecError: the response was lost: AWS may have sold the block.
    """
    tags = {TAG_BLOCK: cluster.title}
    if offer.block.upfront_usd is not None:
        tags[TAG_USD] = f"{offer.block.upfront_usd:.2f}"
    listed: list[TagTypeDef] = [{"Key": name, "Value": value} for name, value in tags.items()]
    marks: TagSpecificationTypeDef = {"ResourceType": "capacity-reservation", "Tags": listed}
    try:
        # EC2 knows no idempotency token for it: it is called once, and not again after an unclear answer.
        sold = aws.ec2.purchase_capacity_block(
            CapacityBlockOfferingId=offer.identity, InstancePlatform="Linux/UNIX", TagSpecifications=[marks]
        )["CapacityReservation"]
    except (ClientError, BotoCoreError) as error:
        if isinstance(error, ClientError) and "Offering" in errors.code(error):
            raise NoCapacityError(
                f"AWS no longer has the offer {offer.identity}; nothing was bought",
                remedy="run the same command again: it shows the offers of now",
            ) from error
        if errors.verdict(error) is ErrorVerdict.LOST:
            raise CloudrecError(
                f"the response to the purchase of {offer.identity} was lost: AWS may have sold the block",
                remedy="wait a minute and run the same command again: it uses a block that was bought, and "
                "asks before it buys one",
            ) from error
        raise
    return _block({**sold, "Tags": listed})


def _written(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

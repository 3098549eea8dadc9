"""Spot prices and placement scores, which a client reads before it requests capacity.

`spot_scores` of /_control: scores from 1 to 10 by "type/zone", "type" or "*": {"p4d.24xlarge/us-east-1a": 1}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation, setting
from cloudrec_sandbox.aws.services import capacity, prices
from cloudrec_sandbox.aws.services.ec2.filters import matching
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

_SCORES = range(1, 11)
_USUAL = 7
_LINUX = "Linux/UNIX"
_CHANGES_EVERY_S = 6 * 3600.0


@dataclass
class Scores:
    """The scores that /_control has set."""

    values: dict[str, int] = field(default_factory=dict)


def _write(world: World, scores: Mapping[str, Any]) -> None:
    if bad := [name for name, score in scores.items() if score not in _SCORES]:
        raise ValueError(f"spot_scores of {', '.join(bad)}: not from 1 to 10")
    world.state(Scores).values.update(scores)


setting("spot_scores", read=lambda world: dict(world.state(Scores).values), write=_write)


@operation("ec2", "GetSpotPlacementScores")
def scores(call: Call) -> dict[str, Any]:
    """Return the placement score of each region or zone, the best first."""
    wanted, known = call.params, call.world.state(Scores).values
    kinds = wanted.get("InstanceTypes", [])
    if not kinds and "InstanceRequirementsWithMetadata" not in wanted:
        raise AwsError("MissingParameter", "The request must contain InstanceTypes or InstanceRequirements")
    rows = []
    for region in wanted.get("RegionNames") or [call.region]:
        ids = {
            zone.name: zone.zone_id
            for zone in call.world.backend("ec2", region).describe_availability_zones()
        }
        by_zone = {
            zone: max(
                (_score(known, kind, zone) for kind in kinds if capacity.is_offered(call.world, kind, zone)),
                default=1,
            )
            for zone in ids
        }
        if wanted.get("SingleAvailabilityZone"):
            rows += [
                {"Region": region, "AvailabilityZoneId": ids[zone], "Score": score}
                for zone, score in by_zone.items()
            ]
        else:
            rows.append({"Region": region, "Score": max(by_zone.values())})
    return {"SpotPlacementScores": sorted(rows, key=lambda row: -row["Score"])}


def _score(known: Mapping[str, int], kind: str, zone: str) -> int:
    names = (f"{kind}/{zone}", kind, "*")
    return next((known[name] for name in names if name in known), _USUAL)


@operation("ec2", "DescribeSpotPriceHistory")
def history(call: Call) -> dict[str, Any]:
    """Return the prices in force, each with the time of its last change."""
    wanted, world = call.params, call.world
    kinds = wanted.get("InstanceTypes") or []
    # A filter can name the types too, instead of the parameter.
    for row in wanted.get("Filters", []):
        if row["Name"] == "instance-type":
            kinds = row["Values"]
    if _LINUX not in wanted.get("ProductDescriptions", [_LINUX]):
        return {"SpotPriceHistory": [], "NextToken": ""}
    zones = [zone.name for zone in call.backend().describe_availability_zones()]
    # Prices change a few times a day, all at once here, so that two calls in a row agree.
    changed = world.now() - world.now() % _CHANGES_EVERY_S
    rows = [
        {
            "AvailabilityZone": zone,
            "InstanceType": kind,
            "ProductDescription": _LINUX,
            "SpotPrice": f"{price:.6f}",
            "Timestamp": as_datetime(changed),
        }
        for kind in kinds
        for zone in zones
        if wanted.get("AvailabilityZone", zone) == zone
        and capacity.exists(kind)
        and capacity.is_offered(world, kind, zone)
        and (price := prices.spot(world, kind, zone)) is not None
    ]
    filters = {
        "availability-zone": lambda row: row["AvailabilityZone"],
        "instance-type": lambda row: row["InstanceType"],
        "product-description": lambda row: row["ProductDescription"],
        "spot-price": lambda row: row["SpotPrice"],
    }
    return {"SpotPriceHistory": matching(rows, wanted.get("Filters", []), filters), "NextToken": ""}

"""When machines can be reserved for a fixed time: the advice of calendar mode.

Source: google-cloud-compute's CalendarModeAdviceRequest and its messages, `gcloud compute advice
calendar-mode`, and "About future reservation requests in calendar mode": one specification in a request, 1 to
90 days for machines with GPUs, and starts up to 120 days ahead.

`calendar` of /_control: how many machines can be reserved, {"a3-megagpu-8g/us-central1-a": 8}; without an
entry none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from google.cloud.compute_v1.types.compute import CalendarModeAdviceRequest

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest, setting
from cloudrec_sandbox.gcp.resources.places import REGIONS
from cloudrec_sandbox.gcp.services.compute.capacity.machines import find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

_SHORTEST, _LONGEST, _AHEAD = timedelta(days=1), timedelta(days=90), timedelta(days=120)
_DURATION = re.compile(r"(\d+)s")


@dataclass
class Calendar:
    """The machines that can be reserved, by "type/zone"."""

    left: dict[str, int] = field(default_factory=dict)


def _write(world: World, counts: Mapping[str, Any]) -> None:
    for name in counts:
        if name.count("/") != 1:
            raise ValueError(f"calendar {name!r} is not TYPE/ZONE")
    world.state(Calendar).left.update({name: int(count) for name, count in counts.items()})


setting("calendar", read=lambda world: dict(world.state(Calendar).left), write=_write)


@rest(
    "compute",
    "advice.calendarMode",
    "POST",
    "/compute/v1/projects/{project}/regions/{region}/advice/calendarMode",
    body=CalendarModeAdviceRequest,
    permission="compute.advice.calendarMode",
)
def calendar_mode(call: Call) -> dict[str, Any]:
    """Recommend the earliest time and zone for each specification; no location if there is none."""
    region, specs = call.params["region"], call.body.get("futureResourcesSpecs", {})
    if region not in REGIONS:
        raise GcpError("NOT_FOUND", f"The resource 'projects/{call.project}/regions/{region}' was not found")
    if len(specs) != 1:
        raise _invalid("futureResourcesSpecs", len(specs), "Exactly one specification must be given.")
    ((name, spec),) = specs.items()
    found = _recommended(call, region, spec)
    return {"recommendations": [{"recommendationsPerSpec": {name: found}}]}


def _recommended(call: Call, region: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    wanted = spec.get("targetResources", {}).get("specificSkuResources", {})
    kind, count = str(wanted.get("machineType", "")), int(wanted.get("instanceCount", 0))
    machine = next((row for zone in REGIONS[region] if (row := find(kind, zone))), None)
    if machine is None or not machine.accelerator or count < 1:
        raise _invalid("machineType", kind, f"A machine type with GPUs in {region} and a count are needed.")
    start, length = _time(call, spec.get("timeRangeSpec", {}))
    policy = spec.get("locationPolicy", {}).get("locations", {})
    denied = {place for place, row in policy.items() if row.get("preference") == "DENY"}
    left, others = call.world.state(Calendar).left, {}
    chosen = ""
    for zone in REGIONS[region]:
        place = f"zones/{zone}"
        if place in denied:
            others[place] = {"status": "CONDITIONS_NOT_MET"}
        elif left.get(f"{kind}/{zone}", 0) < count:
            others[place] = {"status": "NO_CAPACITY"}
        elif not chosen:
            chosen = place
    found: dict[str, Any] = {
        "recommendationId": str(uuid4()),
        "recommendationType": "FUTURE_RESERVATION",
        "otherLocations": others,
    }
    if chosen:
        found |= {
            "location": chosen,
            "startTime": f"{start:%Y-%m-%dT%H:%M:%SZ}",
            "endTime": f"{start + length:%Y-%m-%dT%H:%M:%SZ}",
        }
    return found


def _time(call: Call, wanted: Mapping[str, Any]) -> tuple[datetime, timedelta]:
    """Return the earliest start and the length; GcpError for a range that nothing matches."""
    now = datetime.fromtimestamp(call.world.client_now(), UTC)
    try:
        first = datetime.fromisoformat(wanted["startTimeNotEarlierThan"])
        last = datetime.fromisoformat(wanted["startTimeNotLaterThan"])
    except (KeyError, ValueError) as error:
        raise _invalid("timeRangeSpec", dict(wanted), "It needs a range of start times.") from error
    if last < first or last > now + _AHEAD or last < now:
        raise _invalid(
            "timeRangeSpec.startTimeNotLaterThan", last, f"It must be within {_AHEAD.days} days from now."
        )
    lengths = []
    for name in ("minDuration", "maxDuration"):
        match = _DURATION.fullmatch(str(wanted.get(name, "")))
        if match is None or not _SHORTEST <= timedelta(seconds=int(match[1])) <= _LONGEST:
            raise _invalid(
                f"timeRangeSpec.{name}",
                wanted.get(name),
                f"A reservation of GPUs has {_SHORTEST.days} to {_LONGEST.days} days.",
            )
        lengths.append(timedelta(seconds=int(match[1])))
    if lengths[0] > lengths[1]:
        raise _invalid("timeRangeSpec.minDuration", lengths[0], "It must not exceed maxDuration.")
    return max(first, now), lengths[1]


def _invalid(name: str, value: object, why: str) -> GcpError:
    return GcpError("INVALID_ARGUMENT", f"Invalid value for field '{name}': '{value}'. {why}")

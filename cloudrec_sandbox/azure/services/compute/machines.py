"""How many machines of a region are in use, and how many are still available.

`capacity` of /_control: {"Standard_ND96isr_H100_v5/eastus-1/spot": 0}, machines still available of a size in
a zone, or in a region for pools without zones ("eastus"), as "on-demand" or "spot"; a key that is not named
has no limit, null removes a limit. `restrictions` of /_control: {"Standard_ND96isr_H100_v5/eastus":
"NotAvailableForSubscription", "Standard_NC24ads_A100_v4/eastus-2": ...}: sizes that the subscription cannot
use in a region or a zone; null removes one. `capacity_trace` limits over time how many machines of a place of
`capacity` can run at once (`cloudrec_sandbox.core.capacity.traces`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from cloudrec_sandbox.azure.arm.regions import REGIONS
from cloudrec_sandbox.azure.arm.registry import setting
from cloudrec_sandbox.azure.services.compute import quotas, sizes
from cloudrec_sandbox.core.capacity import traces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec_sandbox.azure.services.compute.sizes import Size
    from cloudrec_sandbox.core.world import World

_PARTS = 3
_MARKETS = ("on-demand", "spot")
_REASONS = ("NotAvailableForSubscription", "QuotaId")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The machines of one owner, by place: "eastus-1", or "eastus" without zones."""

    size: str
    region: str
    spot: bool
    places: dict[str, int]

    @property
    def count(self) -> int:
        """Return the number of machines."""
        return sum(self.places.values())


@dataclass
class Machines:
    """Claims by owner; machines left, and restrictions, by "size/place..." in lower case."""

    claims: dict[str, Claim] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    restrictions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """Why machines are not available, in Compute's words."""

    kind: Literal["size", "quota", "stock"]
    code: str
    message: str
    family: str = ""
    wanted: int = 0
    left: int = 0


def claim(
    world: World,
    owner: str,
    *,
    size: str,
    region: str,
    zones: Sequence[str] = (),
    spot: bool = False,
    count: int,
    placed: bool = False,
    partly: bool = False,
) -> Shortage | None:
    """Set how many machines an owner holds, all or none; return the shortage if it is none.

    `placed`: in a proximity placement group, which has other error codes for a stock-out.
    `partly`: in a stock-out, the owner keeps those that there are.
    """
    if found := shortage(world, owner, size=size, region=region, zones=zones, spot=spot, count=count):
        return found
    machines = world.state(Machines)
    held = machines.claims.get(owner.lower())
    places = dict(held.places) if held else {}
    targets = _places(region, zones)
    # Azure spreads a pool evenly over its zones while they have machines.
    while sum(places.values()) < count:
        open_ = [
            place
            for place in targets
            if _left(machines, size, place, spot=spot) > 0
            and _may_run(world, owner, _key(size, place, spot=spot), places.get(place, 0) + 1)
        ]
        if not open_ and partly:
            machines.claims[owner.lower()] = Claim(size=size, region=region, spot=spot, places=places)
            return _stock_out(size, region, zones, placed=placed)
        if not open_:
            # All or none: give back what this call has taken.
            for place, number in places.items():
                _take(machines, size, place, (held.places.get(place, 0) if held else 0) - number, spot=spot)
            return _stock_out(size, region, zones, placed=placed)
        place = min(open_, key=lambda one: places.get(one, 0))
        places[place] = places.get(place, 0) + 1
        _take(machines, size, place, 1, spot=spot)
    while sum(places.values()) > count:
        place = max(places, key=lambda one: places[one])
        places[place] -= 1
        _take(machines, size, place, -1, spot=spot)
    machines.claims[owner.lower()] = Claim(size=size, region=region, spot=spot, places=places)
    return None


def held(world: World, owner: str) -> int:
    """Return how many machines an owner holds."""
    found = world.state(Machines).claims.get(owner.lower())
    return found.count if found else 0


def holders(world: World, place: str) -> list[tuple[str, int]]:
    """Return who holds machines of a place of `capacity`, and how many, the longest holder first."""
    return [
        (owner, count)
        for owner, claim_ in world.state(Machines).claims.items()
        for where, count in claim_.places.items()
        if _key(claim_.size, where, spot=claim_.spot) == place
    ]


def lose(world: World, owner: str, place: str) -> None:
    """Take one machine from an owner, of a place of `capacity`; of the place with the most if it is empty."""
    machines = world.state(Machines)
    found = machines.claims[owner.lower()]
    where = max(
        found.places,
        key=lambda one: (_key(found.size, one, spot=found.spot) == place, found.places[one]),
    )
    found.places[where] -= 1
    _take(machines, found.size, where, -1, spot=found.spot)


def place(_world: World, zone: str, size: str, market: str) -> str:
    """Return the key of `capacity`; ValueError if there is no such place for a trace."""
    region, _, number = zone.partition("-")
    known = sizes.find(size)
    offered = sizes.zones(known, region) if known is not None and region in REGIONS else None
    key = f"{size}/{zone}/{market}"
    if market not in _MARKETS or offered is None or (number and number not in offered):
        raise ValueError(
            f"capacity_trace: {key!r} is not SIZE/PLACE/({'|'.join(_MARKETS)}) of what is offered"
        )
    return key.lower()


def _may_run(world: World, owner: str, place: str, count: int) -> bool:
    """Return whether an owner can have `count` machines of a place by its trace."""
    most = traces.most(world, place)
    others = sum(number for name, number in holders(world, place) if name != owner.lower())
    return most is None or others + count <= most


def release(world: World, owner: str) -> None:
    """Release the owner's machines."""
    machines = world.state(Machines)
    held = machines.claims.pop(owner.lower(), None)
    for place, number in held.places.items() if held else ():
        _take(machines, held.size, place, -number, spot=held.spot)  # type: ignore[union-attr]  # held is not None in the loop


def shortage(
    world: World,
    owner: str,
    *,
    size: str,
    region: str,
    zones: Sequence[str] = (),
    spot: bool = False,
    count: int,
) -> Shortage | None:
    """Return what prevents `count` machines for an owner, as far as it is known before they are allocated."""
    known = sizes.find(size)
    if known is None:
        return Shortage(
            kind="size",
            code="InvalidParameter",
            message=f"The value {size} provided for the VM size is not valid.",
        )
    if found := _not_offered(world, known, region, zones, spot=spot):
        return found
    held = world.state(Machines).claims.get(owner.lower())
    more = (count - (held.count if held else 0)) * known.vcpus
    for name, title in _limits(known, spot=spot):
        limit, used = quotas.limit(world, region, name), usage(world, region).get(name, 0)
        if more > 0 and used + more > limit:
            return Shortage(
                kind="quota",
                code="OperationNotAllowed",
                message=f"Operation could not be completed as it results in exceeding approved {title} "
                "quota. Additional details - Deployment Model: Resource Manager, "
                f"Location: {region}, Current Limit: {limit}, Current Usage: {used}, "
                f"Additional Required: {more}, (Minimum) New Limit Required: {used + more}.",
                family=name,
                wanted=more,
                left=max(limit - used, 0),
            )
    return None


def usage(world: World, region: str) -> dict[str, int]:
    """Return the vCPUs in use, by the name of the quota that counts them."""
    used: dict[str, int] = {}
    for held in world.state(Machines).claims.values():
        size = sizes.find(held.size)
        if size is not None and held.region == region:
            for name, _ in _limits(size, spot=held.spot):
                used[name] = used.get(name, 0) + size.vcpus * held.count
    return used


def restriction(world: World, size: Size, place: str) -> str | None:
    """Return why a subscription cannot use a size at a place; None if it can."""
    return world.state(Machines).restrictions.get(f"{size.name}/{place}".lower())


def _limits(size: Size, *, spot: bool) -> Iterator[tuple[str, str]]:
    """Yield the quotas that count a size's vCPUs: their names, and their titles in errors."""
    # All spot machines share lowPriorityCores and count for no family.
    if spot:
        yield quotas.SPOT_CORES, "LowPriorityCores"
    else:
        yield size.family.quota, f"{size.family.quota} Cores"
        yield quotas.CORES, "Total Regional Cores"


def _not_offered(
    world: World, size: Size, region: str, zones: Sequence[str], *, spot: bool
) -> Shortage | None:
    offered = sizes.zones(size, region)
    places = _places(region, zones)
    if (
        offered is None
        or set(zones) - set(offered)
        or restriction(world, size, region)
        or any(restriction(world, size, place) for place in places)
        or (spot and not size.family.spot)
    ):
        where = f"'{region}'" + (f" in zones '{','.join(zones)}'" if zones else "")
        return Shortage(
            kind="size",
            code="SkuNotAvailable",
            message="The requested VM size for resource 'Following SKUs have failed for Capacity "
            f"Restrictions: {size.name}' is currently not available in location {where}. Please try another "
            "size or deploy to a different location or different zone. See "
            "https://aka.ms/azureskunotavailable for details.",
        )
    return None


def _stock_out(size: str, region: str, zones: Sequence[str], *, placed: bool) -> Shortage:
    if placed:
        code = "OverconstrainedZonalAllocationRequest" if zones else "OverconstrainedAllocationRequest"
        reason = (
            "Allocation failed. VM(s) with the following constraints cannot be allocated, because the "
            "condition is too restrictive. Please remove some constraints and try again. Constraints applied "
            "are: Proximity Placement Group, VM Size."
        )
    elif zones:
        code = "ZonalAllocationFailed"
        reason = (
            "Allocation failed. We do not have sufficient capacity for the requested VM size in this zone. "
            "Read more about improving likelihood of allocation success at http://aka.ms/allocation-guidance"
        )
    else:
        code = "AllocationFailed"
        reason = (
            "Allocation failed. We do not have sufficient capacity for the requested VM size in this region. "
            "Read more about improving likelihood of allocation success at http://aka.ms/allocation-guidance"
        )
    return Shortage(kind="stock", code=code, message=f"{reason} ({size}, {region})")


def _places(region: str, zones: Sequence[str]) -> list[str]:
    return [f"{region}-{zone}" for zone in zones] or [region]


def _key(size: str, place: str, *, spot: bool) -> str:
    return f"{size}/{place}/{_MARKETS[spot]}".lower()


def _left(machines: Machines, size: str, place: str, *, spot: bool) -> int:
    return machines.left.get(_key(size, place, spot=spot), 1)


def _take(machines: Machines, size: str, place: str, number: int, *, spot: bool) -> None:
    key = _key(size, place, spot=spot)
    if key in machines.left:
        machines.left[key] -= number


def _write_capacity(world: World, wishes: Mapping[str, int | None]) -> None:
    for wish, count in wishes.items():
        parts = wish.split("/")
        if len(parts) != _PARTS or parts[2] not in _MARKETS or sizes.find(parts[0]) is None:
            raise ValueError(f"capacity {wish!r} is not SIZE/PLACE/({'|'.join(_MARKETS)}) of a known size")
        if count is None:
            world.state(Machines).left.pop(wish.lower(), None)
        else:
            world.state(Machines).left[wish.lower()] = int(count)


def _write_restrictions(world: World, wishes: Mapping[str, str | None]) -> None:
    for wish, reason in wishes.items():
        name, _, place = wish.partition("/")
        if sizes.find(name) is None or place.partition("-")[0] not in REGIONS:
            raise ValueError(f"restriction {wish!r} is not SIZE/REGION or SIZE/REGION-ZONE of what there is")
        if reason is None:
            world.state(Machines).restrictions.pop(wish.lower(), None)
        elif reason in _REASONS:
            world.state(Machines).restrictions[wish.lower()] = reason
        else:
            raise ValueError(f"restriction {reason!r} is none of {', '.join(_REASONS)}")


setting("capacity", read=lambda world: dict(world.state(Machines).left), write=_write_capacity)
setting(
    "restrictions", read=lambda world: dict(world.state(Machines).restrictions), write=_write_restrictions
)

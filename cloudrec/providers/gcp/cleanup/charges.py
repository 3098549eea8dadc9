"""What a resource costs an hour, from Google's description of it and the price table.

A price that the table does not have is unknown. So is that of a machine with parts that are billed
separately and have no row: accelerators or local disks that the machine type does not include.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import FREE, times
from cloudrec.providers.base.protocol import ON_DEMAND, SPOT
from cloudrec.providers.gcp.api import ids
from cloudrec.providers.gcp.offers import KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.providers.base.prices import Prices

    Document = Mapping[str, Any]  # of JSON
    Charge = Callable[[Prices, Document], float | None]  # the prices are those of the resource's region

_STOPPED = frozenset({"STOPPED", "TERMINATED"})  # only the disks of such a machine are billed
_IN_MEMORY = "SUSPENDED"  # billed by the memory that is kept
_GIB = 2**30


def free(prices: Prices, row: Document) -> float | None:
    """Return 0: Google does not bill this kind of resource."""
    del prices, row
    return FREE


def unknown(prices: Prices, row: Document) -> float | None:
    """Return None: the table has no price for this kind of resource."""
    del prices, row
    return None


def instance(prices: Prices, row: Document) -> float | None:
    """Return the price of a machine as it is sold, without its disks, which are separate resources."""
    if row.get("status") in _STOPPED:
        return FREE
    if row.get("status") == _IN_MEMORY:
        return None
    local = sum(disk.get("type") == "SCRATCH" for disk in row.get("disks", ()))
    way = row.get("scheduling", {})
    spot = way.get("provisioningModel") == SPOT.upper() or way.get("preemptible", False)
    return _machine(
        prices,
        ids.name(row.get("machineType", "")),
        SPOT if spot else ON_DEMAND,
        zone=ids.name(row.get("zone", "")),
        added=(local, len(row.get("guestAccelerators", ()))),
    )


def reservation(prices: Prices, row: Document) -> float | None:
    """Return the price of the reserved machines that no instance uses; the others are billed as instances."""
    holds = row.get("specificReservation", {})
    machine = holds.get("instanceProperties", {})
    unused = int(holds.get("count", 0)) - int(holds.get("inUseCount", 0))
    added = len(machine.get("localSsds", ())), len(machine.get("guestAccelerators", ()))
    return times(unused, _machine(prices, machine.get("machineType", ""), ON_DEMAND, added=added))


def disk(prices: Prices, row: Document) -> float | None:
    """Return the price of a zonal disk by its size; the table has none of regional disks and of IOPS."""
    if row.get("replicaZones"):
        return None
    return prices.service(f"disk-{ids.name(row.get('type', ''))}-gib", float(row.get("sizeGb", 0)))


def snapshot(prices: Prices, row: Document) -> float | None:
    """Return the price of a snapshot by its stored bytes; in several regions, or archived, it has another."""
    places = row.get("storageLocations", ())
    if len(places) != 1 or row.get("snapshotType") == "ARCHIVE":
        return None
    return prices.within(places[0]).service("snapshot-gib", int(row.get("storageBytes", 0)) / _GIB)


def address(prices: Prices, row: Document) -> float | None:
    """Return the price of an external address; that of a global one is not in the table."""
    if row.get("addressType") == "INTERNAL":
        return FREE
    return prices.service("address") if row.get("region") else None


def forwarding_rule(prices: Prices, row: Document) -> float | None:
    """Return the price of a regional forwarding rule; that of a global one is not in the table."""
    return prices.service("forwarding-rule") if row.get("region") else None


def router(prices: Prices, row: Document) -> float | None:
    """Return the price of the NATs of a router, which is itself free."""
    return prices.service("nat-gateway", len(row.get("nats", ())))


def _machine(
    prices: Prices, name: str, capacity: str, *, added: tuple[int, int], zone: str = ""
) -> float | None:
    """Return a machine's price; None if it has local disks or accelerators beside those of its type."""
    local, accelerators = added
    known = KNOWN.get(name)
    if (local and not (known and known.local_ssds)) or (accelerators and not known):
        return None
    return prices.node(name, capacity, zone)

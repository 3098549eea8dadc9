"""Routers, and the NATs in them: a patch that names NATs names them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.cloud.compute_v1.types.compute import Router

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest
from cloudrec_sandbox.gcp.resources import checks, store
from cloudrec_sandbox.gcp.resources.operations import Failure
from cloudrec_sandbox.gcp.services.compute import changes, collections, references
from cloudrec_sandbox.gcp.services.compute.collections import Collection
from cloudrec_sandbox.gcp.services.compute.network import profiles

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

durations({"compute-router": 15, "compute-nat": 30})

_MOST_NATS = 50
_PUBLIC = "PUBLIC"
_SOME = "LIST_OF_SUBNETWORKS"
_FIXED = ("network", "name")

ROUTERS = Collection(
    name="routers",
    noun="router",
    scope="region",
    message=Router,
    duration="compute-router",
    quota="ROUTERS",
    refers=("network",),
)


def _check(call: Call, document: dict[str, Any]) -> None:
    if not document.get("network"):
        raise GcpError(
            "INVALID_ARGUMENT", "Required field 'resource.network' not specified", classic="required"
        )
    profiles.refuse(call.world, document["network"], "CloudRouter", "network")
    _check_nats(call, document)


def _check_nats(call: Call, document: dict[str, Any]) -> None:
    nats = document.get("nats", [])
    names = [checks.name(nat.get("name"), "resource.nats[0].name") for nat in nats]
    if len(names) != len(set(names)) or len(names) > _MOST_NATS:
        raise _invalid("nats", ", ".join(names), f"Names must be different, and at most {_MOST_NATS}.")
    for nat in nats:
        _check_nat(call, document, nat)


def _check_nat(call: Call, document: dict[str, Any], nat: dict[str, Any]) -> None:
    way, addresses = nat.get("natIpAllocateOption"), bool(nat.get("natIps"))
    if nat.setdefault("type", _PUBLIC) != _PUBLIC:
        if way or addresses:
            raise _invalid("nats[0].natIpAllocateOption", way or "", "A private NAT has no addresses.")
    elif way not in ("AUTO_ONLY", "MANUAL_ONLY") or (way == "MANUAL_ONLY") != addresses:
        raise _invalid("nats[0].natIpAllocateOption", way or "", "MANUAL_ONLY goes with natIps, only.")
    nat["natIps"] = [_at(call, link, "natIps") for link in nat.get("natIps", [])]
    if not nat["natIps"]:
        del nat["natIps"]
    source = nat.get("sourceSubnetworkIpRangesToNat")
    if not source or (source == _SOME) != bool(nat.get("subnetworks")):
        text = f"{_SOME} goes with subnetworks, only."
        raise _invalid("nats[0].sourceSubnetworkIpRangesToNat", source or "", text)
    for each in nat.get("subnetworks", []):
        each["name"] = _at(call, each["name"], "subnetworks[0].name")
        inside = store.need(call.world, "compute", store.path_of(each["name"])).document
        if inside["network"] != document["network"]:
            raise _invalid("nats[0].subnetworks[0].name", each["name"], "It is of another network.")
    _check_ports(nat)
    nat.setdefault("endpointTypes", ["ENDPOINT_TYPE_VM"])


def _at(call: Call, link: str, field: str) -> str:
    """Return the full link for a NAT's reference."""
    holder = {field: link}
    references.refer(call, holder, field, "resource.nats[0]")
    return holder[field]


def _check_ports(nat: dict[str, Any]) -> None:
    if not nat.setdefault("enableDynamicPortAllocation", False):
        if nat.get("maxPortsPerVm"):
            text = "It needs enableDynamicPortAllocation."
            raise _invalid("nats[0].maxPortsPerVm", nat["maxPortsPerVm"], text)
        return
    if nat.get("enableEndpointIndependentMapping"):
        text = "It cannot be used with enableDynamicPortAllocation."
        raise _invalid("nats[0].enableEndpointIndependentMapping", "true", text)
    least, most = nat.setdefault("minPortsPerVm", 32), nat.setdefault("maxPortsPerVm", 65536)
    if least & (least - 1) or most & (most - 1) or not 32 <= least < most <= 65536:  # noqa: PLR2004
        text = "With dynamic allocation these are powers of 2, from 32 to 65536, the least below the most."
        raise _invalid("nats[0].minPortsPerVm", f"{least}, {most}", text)


def _invalid(field: str, value: object, why: str) -> GcpError:
    return GcpError("INVALID_ARGUMENT", f"Invalid value for field 'resource.{field}': '{value}'. {why}")


def alone(world: World, path: str) -> Failure | None:
    """Return the failure if another NAT of the region has the same subnets of the network."""
    mine = store.need(world, "compute", path)
    return _shared(world, path, mine.document.get("nats", []))


def _shared(world: World, path: str, wanted: list[dict[str, Any]]) -> Failure | None:
    mine = store.need(world, "compute", path)
    folder = path.rpartition("/")[0]
    others = [
        (each.name, nat)
        for each in store.within(world, "compute", f"{folder}/")
        if each.document["network"] == mine.document["network"] and each.path != path
        for nat in each.document.get("nats", [])
    ]
    for place, nat in enumerate(wanted):
        for router, other in [*others, *((mine.name, each) for each in wanted[:place])]:
            if _all_or_same(nat, other):
                return Failure(
                    "INVALID_USAGE",
                    f"NAT '{nat['name']}' overlaps with NAT '{other['name']}' of router '{router}': a"
                    " subnetwork's ranges may be translated by one NAT only.",
                )
    return None


def _all_or_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if one["type"] != other["type"]:
        return False
    if _SOME not in (one["sourceSubnetworkIpRangesToNat"], other["sourceSubnetworkIpRangesToNat"]):
        return True
    # A NAT of all subnets allows no other NAT of the same type.
    named = [{each["name"] for each in nat.get("subnetworks", [])} for nat in (one, other)]
    return not all(named) or bool(named[0] & named[1])


collections.reads(ROUTERS)
changes.inserts(ROUTERS, _check, alone)
changes.deletes(ROUTERS)


@rest(
    "compute",
    "routers.patch",
    "PATCH",
    ROUTERS.url + "/{name}",
    body=Router,
    query=("requestId",),
    permission="compute.routers.update",
)
def patch(call: Call) -> dict[str, Any]:
    """Change what is named. A list is replaced as a whole: a client that writes an old one loses entries."""
    resource = references.ready(ROUTERS.need(call))
    wishes = dict(call.body)
    if wishes.get("network"):
        wishes["network"] = store.link(store.path_of(wishes["network"], call.project))
    for name in _FIXED:
        if name in wishes and wishes[name] != resource.document[name]:
            raise _invalid(name, wishes[name], "It cannot be changed.")
    after = {**resource.document, **wishes}
    _check_nats(call, after)
    duration = "compute-nat" if "nats" in wishes else "compute-change"
    seconds = call.world.duration(duration)
    return changes.change(call, resource, "patch", seconds, patched, (wishes,))


def patched(world: World, path: str, wishes: dict[str, Any]) -> Failure | None:
    """End the patch."""
    failure = _shared(world, path, wishes["nats"]) if "nats" in wishes else None
    if failure is None:
        changes.merge(world, path, wishes)
    return failure

"""Firewall rules of networks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from google.cloud.compute_v1.types.compute import Firewall

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest
from cloudrec_sandbox.gcp.resources import checks, store
from cloudrec_sandbox.gcp.services.compute import changes, collections, references
from cloudrec_sandbox.gcp.services.compute.collections import Collection
from cloudrec_sandbox.gcp.services.compute.network import profiles, ranges

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call

durations({"compute-firewall": 10})

_PROTOCOLS = ("all", "ah", "esp", "icmp", "ipip", "sctp", "tcp", "udp")
_WITH_PORTS = ("sctp", "tcp", "udp", "6", "17", "132")
_PORTS = re.compile(r"\d{1,5}(-\d{1,5})?")
_MOST = 65535
_FROM_INSIDE = ("sourceTags", "sourceServiceAccounts")
_FIXED = ("network", "direction", "name")

FIREWALLS = Collection(
    name="firewalls",
    noun="firewall",
    scope="global",
    message=Firewall,
    duration="compute-firewall",
    quota="FIREWALLS",
    refers=("network",),
)


def _check(call: Call, document: dict[str, Any]) -> None:
    if not document.get("network"):
        document["network"] = "global/networks/default"
        references.refer(call, document, "network")
    profiles.refuse(call.world, document["network"], "VpcFirewallRules", "network")
    direction = document.setdefault("direction", "INGRESS")
    if not 0 <= document.setdefault("priority", 1000) <= _MOST:
        raise _invalid("priority", document["priority"], f"Must be between 0 and {_MOST}.")
    document.setdefault("disabled", False)
    document.setdefault("logConfig", {"enable": False})
    _check_rules(document)
    _check_ends(document, direction)


def _check_rules(document: dict[str, Any]) -> None:
    # A rule either allows or denies: Compute has no mixed rules.
    if ("allowed" in document) == ("denied" in document):
        raise _invalid("allowed", "", "Exactly one of allowed and denied must be given.")
    for rule in document.get("allowed", document.get("denied", [])):
        protocol = str(rule.get("IPProtocol", ""))
        if protocol not in _PROTOCOLS and not protocol.isdecimal():
            raise _invalid("allowed[0].IPProtocol", protocol, "Must be a known protocol or its number.")
        ports = rule.get("ports", [])
        if ports and protocol not in _WITH_PORTS:
            raise _invalid("allowed[0].ports", ports[0], f"Ports may not be specified for '{protocol}'.")
        for port in ports:
            ends = [int(end) for end in port.split("-")] if _PORTS.fullmatch(port) else [_MOST + 1]
            if ends[-1] > _MOST or ends[0] > ends[-1]:
                raise _invalid("allowed[0].ports", port, "Must be a port or a range of ports.")


def _check_ends(document: dict[str, Any], direction: str) -> None:
    """Check the sources and destinations of a rule's traffic."""
    for name in ("sourceRanges", "destinationRanges"):
        for text in document.get(name, []):
            ranges.any_block(text, f"resource.{name}")
    for name in ("sourceTags", "targetTags"):
        for tag in document.get(name, []):
            checks.name(tag, f"resource.{name}")
    if direction == "EGRESS":
        if given := [name for name in ("sourceRanges", *_FROM_INSIDE) if document.get(name)]:
            raise _invalid(given[0], document[given[0]][0], "Not allowed where the direction is EGRESS.")
        document.setdefault("destinationRanges", ["0.0.0.0/0"])
    elif not any(document.get(name) for name in ("sourceRanges", *_FROM_INSIDE)):
        # A rule for incoming traffic that names no source is for all of them.
        document["sourceRanges"] = ["0.0.0.0/0"]
    by_tags = document.get("sourceTags") or document.get("targetTags")
    if by_tags and (document.get("sourceServiceAccounts") or document.get("targetServiceAccounts")):
        raise _invalid("targetTags", by_tags[0], "Tags and service accounts cannot be used together.")


def _invalid(field: str, value: object, why: str) -> GcpError:
    return GcpError("INVALID_ARGUMENT", f"Invalid value for field 'resource.{field}': '{value}'. {why}")


collections.reads(FIREWALLS, aggregated=False)
changes.inserts(FIREWALLS, _check)
changes.deletes(FIREWALLS)


@rest(
    "compute",
    "firewalls.patch",
    "PATCH",
    FIREWALLS.url + "/{name}",
    body=Firewall,
    query=("requestId",),
    permission="compute.firewalls.update",
)
def patch(call: Call) -> dict[str, Any]:
    """Change what is named; a list is replaced."""
    resource = references.ready(FIREWALLS.need(call))
    wishes = dict(call.body)
    if wishes.get("network"):
        wishes["network"] = store.link(store.path_of(wishes["network"], call.project))
    for name in _FIXED:
        if name in wishes and wishes[name] != resource.document[name]:
            raise _invalid(name, wishes[name], "It cannot be changed.")
    after = {**resource.document, **wishes}
    _check_rules(after)
    _check_ends(after, after["direction"])
    seconds = call.world.duration("compute-firewall")
    return changes.change(call, resource, "patch", seconds, changes.merge, (wishes,))

"""Network policies: `ValidateNetworkPolicy` in pkg/apis/networking/validation; and label selectors."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.rules import names
from cloudrec_sandbox.kubernetes.rules.kinds.services import PROTOCOLS, check_port
from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.rules.problems import Problems

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_TYPES = ("Ingress", "Egress")
_BLOCK = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_INSIDE = "must be a strict subset of `cidr`"


def check_selector(selector: Mapping[str, Any], path: str, problems: Problems) -> None:
    """Report what is wrong in a label selector (`ValidateLabelSelector` of apimachinery)."""
    names.check_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels", problems)
    for index, each in enumerate(selector.get("matchExpressions") or ()):
        below, operator, values = (
            f"{path}.matchExpressions[{index}]",
            each.get("operator"),
            each.get("values"),
        )
        if operator not in _OPERATORS:
            problems.invalid(f"{below}.operator", operator, "not a valid selector operator")
        elif operator in ("In", "NotIn") and not values:
            problems.required(f"{below}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator not in ("In", "NotIn") and values:
            problems.forbidden(
                f"{below}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            )


@check("networkpolicies")
def _policy(change: Change, problems: Problems) -> None:
    spec = change.spec
    check_selector(spec.get("podSelector") or {}, "spec.podSelector", problems)
    types = spec.get("policyTypes") or []
    if len(types) > len(_TYPES):
        problems.invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
    else:
        for index, each in enumerate(types):
            if each not in _TYPES:
                problems.unsupported(f"spec.policyTypes[{index}]", each, _TYPES)
    for way, others in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(way) or ()):
            below = f"spec.{way}[{index}]"
            for number, port in enumerate(rule.get("ports") or ()):
                _check_port(port, f"{below}.ports[{number}]", problems)
            for number, peer in enumerate(rule.get(others) or ()):
                _check_peer(peer, f"{below}.{others}[{number}]", problems)


def _check_port(port: Mapping[str, Any], path: str, problems: Problems) -> None:
    if port.get("protocol", "TCP") not in PROTOCOLS:
        problems.unsupported(f"{path}.protocol", port["protocol"], PROTOCOLS)
    first, last = port.get("port"), port.get("endPort")
    if first is not None:
        check_port(first, f"{path}.port", problems)
    if last is None:
        return
    if first is None:
        problems.invalid(f"{path}.endPort", last, "may not be specified when `port` is not specified")
    elif isinstance(first, str):
        problems.invalid(f"{path}.endPort", last, "may not be specified when `port` is non-numeric")
    elif last < first:
        problems.invalid(f"{path}.endPort", last, "must be greater than or equal to `port`")


def _check_peer(peer: Mapping[str, Any], path: str, problems: Problems) -> None:
    kinds = [name for name in ("ipBlock", "podSelector", "namespaceSelector") if peer.get(name) is not None]
    if not kinds:
        problems.required(path, "must specify a peer")
    elif "ipBlock" in kinds and len(kinds) > 1:
        problems.forbidden(path, "may not specify both ipBlock and another peer")
    for name in ("podSelector", "namespaceSelector"):
        check_selector(peer.get(name) or {}, f"{path}.{name}", problems)
    if "ipBlock" in kinds:
        _check_block(peer["ipBlock"], f"{path}.ipBlock", problems)


def _check_block(block: Mapping[str, Any], path: str, problems: Problems) -> None:
    text = block.get("cidr", "")
    if not text:
        problems.required(f"{path}.cidr")
        return
    whole = _network(text, f"{path}.cidr", problems)
    for index, each in enumerate(block.get("except") or ()):
        part = _network(each, f"{path}.except[{index}]", problems)
        if part is None or whole is None:
            continue
        inside = part.version == whole.version and part != whole and part.subnet_of(whole)  # type: ignore[arg-type]
        if not inside:
            problems.invalid(f"{path}.except[{index}]", each, _INSIDE)


def _network(
    text: str, path: str, problems: Problems
) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return a network; an address with bits of the host is refused for new objects (1.36)."""
    try:
        found = ipaddress.ip_network(text)
    except ValueError:
        found = None
    if found is None or "/" not in text:
        problems.invalid(path, text, _BLOCK)
        return None
    return found

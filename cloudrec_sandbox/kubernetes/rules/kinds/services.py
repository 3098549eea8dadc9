"""Services: `ValidateService` in pkg/apis/core/validation."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.rules import names
from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.rules.problems import Problems

SERVICE_NETWORK = ipaddress.ip_network("10.96.0.0/16")
PROTOCOLS = ("SCTP", "TCP", "UDP")
MOST_PORT = 65535
PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")
_NODE_PORTS = range(30000, 32768)  # --service-node-port-range
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_CHOICES = {
    "sessionAffinity": ("ClientIP", "None"),
    "internalTrafficPolicy": ("Cluster", "Local"),
    "externalTrafficPolicy": ("Cluster", "Local"),
}
_OUTSIDE = ("NodePort", "LoadBalancer")


@check("services")
def _service(change: Change, problems: Problems) -> None:
    spec = change.spec
    if spec.get("type") not in _TYPES:
        return  # reported by another rule
    for name, choices in _CHOICES.items():
        if name in spec and spec[name] not in choices:
            problems.unsupported(f"spec.{name}", spec[name], choices)
    is_outside = spec["type"] in _OUTSIDE
    if (
        "externalTrafficPolicy" in spec
        and not is_outside
        and spec["externalTrafficPolicy"] in ("Cluster", "Local")
    ):
        why = "may only be set for externally-accessible services"
        problems.invalid("spec.externalTrafficPolicy", spec["externalTrafficPolicy"], why)
    is_others = spec.get("clusterIP") == "None" and not spec.get("selector")
    if spec.get("ipFamilyPolicy") == "RequireDualStack" and not is_others:
        problems.invalid(
            "spec.ipFamilyPolicy",
            "RequireDualStack",
            "this cluster is not configured for dual-stack services",
        )
    names.check_labels(spec.get("selector") or {}, "spec.selector", problems)
    if spec["type"] == "ExternalName":
        name = spec.get("externalName", "")
        if not name:
            problems.required("spec.externalName")
        elif why := names.subdomain_problem(name.rstrip(".").lower()):
            problems.invalid("spec.externalName", name, why)
    _check_address(spec, problems)
    _check_ports(spec, problems, is_outside=is_outside)


def _check_address(spec: Mapping[str, Any], problems: Problems) -> None:
    address = spec.get("clusterIP", "")
    if not address:
        return
    if address == "None":
        if spec["type"] in _OUTSIDE:
            problems.invalid(
                "spec.clusterIPs[0]", address, f"may not be set to 'None' for {spec['type']} services"
            )
        return
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        problems.invalid(
            "spec.clusterIPs[0]", address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        )
        return
    if found not in SERVICE_NETWORK:
        why = f"failed to allocate IP {address}: the provided IP is not in the valid range"
        problems.invalid("spec.clusterIPs", [address], why)


def _check_ports(spec: Mapping[str, Any], problems: Problems, *, is_outside: bool) -> None:
    seen: set[str] = set()
    for index, port in enumerate(spec.get("ports") or ()):
        below, name = f"spec.ports[{index}]", port.get("name", "")
        if name and name in seen:
            problems.duplicate(f"{below}.name", name)
        seen.add(name)
        if port.get("protocol") not in PROTOCOLS:
            problems.unsupported(f"{below}.protocol", port.get("protocol"), PROTOCOLS)
        for field in ("port", "targetPort"):
            check_port(port.get(field, 0), f"{below}.{field}", problems)
        if number := port.get("nodePort"):
            if not is_outside:
                problems.forbidden(f"{below}.nodePort", "may not be used when `type` is 'ClusterIP'")
            elif number not in _NODE_PORTS:
                problems.invalid(f"{below}.nodePort", number, "provided port is not in the valid range")


def check_port(port: Any, path: str, problems: Problems) -> None:  # noqa: ANN401 - JSON
    """Report a number or a name that no port can have."""
    if isinstance(port, str):
        if not PORT_NAME.fullmatch(port):
            problems.invalid(
                path, port, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
            )
    elif not 1 <= port <= MOST_PORT:
        problems.invalid(path, port, f"must be between 1 and {MOST_PORT}, inclusive")

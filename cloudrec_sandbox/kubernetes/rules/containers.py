"""Containers: names, images, ports, environment, mounts, resources."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.rules import names
from cloudrec_sandbox.kubernetes.rules.amounts import amount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.kubernetes.rules.problems import Problems

_PORTS = 65535
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_PULL = ("Always", "IfNotPresent", "Never")
_MESSAGES = ("File", "FallbackToLogsOnError")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_ENV = re.compile(r"[ -<>-~]+")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")
_OWN = ("cpu", "memory", "ephemeral-storage")


def check_all(spec: Mapping[str, Any], path: str, volumes: set[str], problems: Problems) -> None:
    """Report what is wrong in the containers of a pod."""
    if not spec.get("containers"):
        problems.required(f"{path}.containers")
    seen: set[str] = set()
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            below, name = f"{path}.{kind}[{index}]", container.get("name", "")
            if name in seen:
                problems.duplicate(f"{below}.name", name)
            seen.add(name)
            _check(container, below, volumes, problems)


def _check(container: Mapping[str, Any], path: str, volumes: set[str], problems: Problems) -> None:
    name, image = container.get("name", ""), container.get("image", "")
    if not name:
        problems.required(f"{path}.name")
    elif why := names.label_problem(name):
        problems.invalid(f"{path}.name", name, why)
    if not image:
        problems.required(f"{path}.image")
    elif image != image.strip():
        problems.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    for field, supported in (("imagePullPolicy", _PULL), ("terminationMessagePolicy", _MESSAGES)):
        if field in container and container[field] not in supported:
            problems.unsupported(f"{path}.{field}", container[field], supported)
    _check_ports(container.get("ports") or (), f"{path}.ports", problems)
    _check_environment(container.get("env") or (), f"{path}.env", problems)
    _check_mounts(container.get("volumeMounts") or (), f"{path}.volumeMounts", volumes, problems)
    check_resources(container.get("resources") or {}, f"{path}.resources", problems)
    _check_security(container.get("securityContext") or {}, f"{path}.securityContext", problems)


def _check_ports(ports: Sequence[Mapping[str, Any]], path: str, problems: Problems) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        below, name = f"{path}[{index}]", port.get("name", "")
        for field in ("containerPort", "hostPort"):
            if field in port and not 1 <= port[field] <= _PORTS:
                problems.invalid(
                    f"{below}.{field}", port[field], f"must be between 1 and {_PORTS}, inclusive"
                )
        if port.get("protocol", "TCP") not in _PROTOCOLS:
            problems.unsupported(f"{below}.protocol", port["protocol"], _PROTOCOLS)
        if name and not _PORT_NAME.fullmatch(name):
            problems.invalid(f"{below}.name", name, "must be no more than 15 characters of a-z, 0-9 and '-'")
        if name and name in seen:
            problems.duplicate(f"{below}.name", name)
        seen.add(name)


def _check_environment(variables: Sequence[Mapping[str, Any]], path: str, problems: Problems) -> None:
    for index, each in enumerate(variables):
        below, name = f"{path}[{index}]", each.get("name", "")
        if not name:
            problems.required(f"{below}.name")
        elif not _ENV.fullmatch(name):
            problems.invalid(
                f"{below}.name",
                name,
                "a valid environment variable name must consist only of printable "
                "ASCII characters other than '='",
            )
        source = each.get("valueFrom")
        if source is None:
            continue
        found = [one for one in _SOURCES if one in source]
        if each.get("value"):
            problems.invalid(f"{below}.valueFrom", "", "may not be specified when `value` is not empty")
        if len(found) != 1:
            why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
            problems.invalid(
                f"{below}.valueFrom", "", why if not found else "may not have more than one field"
            )


def _check_mounts(
    mounts: Sequence[Mapping[str, Any]], path: str, volumes: set[str], problems: Problems
) -> None:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        below, name, place = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            problems.required(f"{below}.name")
        elif name not in volumes:
            problems.missing(f"{below}.name", name)
        if not place:
            problems.required(f"{below}.mountPath")
        elif place in seen:
            problems.invalid(f"{below}.mountPath", place, "must be unique")
        seen.add(place)
        if ".." in mount.get("subPath", "").split("/"):
            problems.invalid(f"{below}.subPath", mount["subPath"], "must not contain '..'")


def check_resources(resources: Mapping[str, Any], path: str, problems: Problems) -> None:
    """Report what is wrong in a container's requests and limits."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            _check_amount(name, value, f"{path}.{field}", problems)
    for name, value in requests.items():
        if name in limits:
            _check_pair(name, value, limits[name], f"{path}.requests", problems)
        elif _is_counted(name):
            problems.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    if any(name.startswith("hugepages-") for name in limits) and not {"cpu", "memory"} & {*limits, *requests}:
        problems.forbidden(path, "HugePages require cpu or memory")


def _is_counted(name: str) -> bool:
    """Return whether it is given in whole numbers and exclusively: GPUs, cards, huge pages."""
    return name not in _OWN


def _check_amount(name: str, value: Any, path: str, problems: Problems) -> None:  # noqa: ANN401 - JSON
    below = f"{path}[{name}]"
    if name not in _OWN and not name.startswith("hugepages-") and "/" not in name:
        problems.invalid(
            below,
            name,
            "must be a standard resource type or fully qualified; must be a standard resource for containers",
        )
    try:
        number = amount(value)
    except ValueError:
        problems.invalid(below, value, "quantities must match the regular expression")
        return
    if number < 0:
        problems.invalid(below, value, "must be greater than or equal to 0")
    if "/" in name and number != number.to_integral_value():
        problems.invalid(below, value, "must be an integer")


def _check_pair(name: str, request: Any, limit: Any, path: str, problems: Problems) -> None:  # noqa: ANN401 - JSON
    try:
        asked, most = amount(request), amount(limit)
    except ValueError:
        return
    if _is_counted(name) and asked != most:
        problems.invalid(path, str(request), f"must be equal to {name} limit of {limit}")
    elif asked > most:
        problems.invalid(path, str(request), f"must be less than or equal to {name} limit of {limit}")


def _check_security(context: Mapping[str, Any], path: str, problems: Problems) -> None:
    escalates = context.get("allowPrivilegeEscalation", True)
    added = (context.get("capabilities") or {}).get("add") or ()
    if not escalates and context.get("privileged"):
        problems.invalid(
            path, value=False, why="cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        )
    if not escalates and {"CAP_SYS_ADMIN", "SYS_ADMIN"} & set(added):
        problems.invalid(
            path,
            value=False,
            why="cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
        )

"""The account's quotas, what is used and what the cluster needs; some are 0 until one asks for more."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.offers import ON_DEMAND, SPOT
from cloudrec.provider import Finding
from cloudrec.providers.aws import errors, nodes
from cloudrec.providers.aws.driver import as_map

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout

# Quotas on virtual CPUs that run at once: families of instance types, market -> the quota's code.
_VCPUS: tuple[tuple[str, Mapping[str, str]], ...] = (
    (r"p5\w*\.", {SPOT: "L-C4BD4855", ON_DEMAND: "L-417A185B"}),
    (r"p\d", {SPOT: "L-7212CCBC", ON_DEMAND: "L-417A185B"}),
    (r"g(r)?\d|vt\d", {SPOT: "L-3819A6DF", ON_DEMAND: "L-DB2E81BA"}),
    (r"[acdhimrtz]\d", {SPOT: "L-34B43A08", ON_DEMAND: "L-1216C47A"}),
)
_VPCS, _ADDRESSES = ("vpc", "L-F678F1CE"), ("ec2", "L-0263D0A3")
_CLUSTER_TAG = "eks:cluster-name"  # EKS's own, on every node


@dataclass(frozen=True, kw_only=True)
class Need:
    """So much of one quota is needed.

    Attributes:
        what: in a person's words.
        service: whose quota it is.
        code: the quota's.
        count: how much of it the cluster needs in all.
        used: how much others use.
    """

    what: str
    service: str
    code: str
    count: float
    used: float


def findings(aws: Aws, layout: Layout) -> list[Finding]:
    """Check each quota that the cluster needs.

    Of the ways of having GPU nodes one is enough: a quota that rules some of them out is a warning.
    """
    instances = _instances(aws)
    vcpus = _vcpus(
        aws, {each["InstanceType"] for each in instances} | set(layout.settings.cpu_instance_types)
    )
    vcpus |= {name: hardware.vcpus for name, hardware in layout.hardware.items()}
    others = [each for each in instances if as_map(each.get("Tags")).get(_CLUSTER_TAG) != layout.name]
    found = [_finding(aws, need) for need in _networks(aws, layout)]
    cpu = max((vcpus.get(name, 0) for name in layout.settings.cpu_instance_types), default=0)
    code = quota_of(layout.settings.cpu_instance_types[0], ON_DEMAND)
    found.append(
        _finding(aws, _vcpu_need(code, cpu * layout.settings.cpu_nodes, others, vcpus, "vCPUs of CPU nodes"))
    )
    return [*found, *_gpu_findings(aws, layout, others, vcpus)]


def quota_of(instance_type: str, market: str) -> str:
    """Return the code of the quota on virtual CPUs; empty where none is known, or none counts."""
    for family, codes in _VCPUS:
        if re.match(family, instance_type):
            return codes.get(market, "")
    return ""


def _gpu_findings(
    aws: Aws, layout: Layout, others: Sequence[Mapping[str, Any]], vcpus: Mapping[str, int]
) -> list[Finding]:
    checked: dict[tuple[str, str], Finding] = {}
    for way in nodes.places(layout):
        if code := quota_of(way.instance_type, way.market):
            count = layout.hardware[way.instance_type].vcpus * layout.cluster.nodes
            what = f"{way.market} vCPUs for {layout.cluster.nodes} x {way.instance_type}"
            if (way.instance_type, way.market) not in checked:
                need = _vcpu_need(code, count, others, vcpus, what)
                checked[way.instance_type, way.market] = _finding(aws, need)
    none = bool(checked) and not any(finding.ok for finding in checked.values())
    return [
        Finding(
            check=finding.check,
            ok=finding.ok,
            found=finding.found,
            needed=finding.needed,
            remedy=finding.remedy,
            blocks=none and finding.blocks,
        )
        for finding in checked.values()
    ]


def _vcpu_need(
    code: str, count: float, others: Sequence[Mapping[str, Any]], vcpus: Mapping[str, int], what: str
) -> Need:
    used = sum(
        vcpus.get(each["InstanceType"], 0)
        for each in others
        if quota_of(each["InstanceType"], each.get("InstanceLifecycle", ON_DEMAND)) == code
    )
    return Need(what=what, service="ec2", code=code, count=count, used=used)


def _networks(aws: Aws, layout: Layout) -> Iterable[Need]:
    vpcs = aws.read("ec2", "describe_vpcs", "Vpcs")
    addresses = aws.read("ec2", "describe_addresses", "Addresses")
    service, code = _VPCS
    yield Need(what="VPCs", service=service, code=code, count=1, used=_of_others(vpcs, layout))
    if layout.settings.nat:
        service, code = _ADDRESSES
        used = _of_others(addresses, layout)
        yield Need(what="elastic IP addresses", service=service, code=code, count=1, used=used)


def _of_others(rows: Sequence[Mapping[str, Any]], layout: Layout) -> int:
    return sum(as_map(row.get("Tags")).get("Name") != layout.name for row in rows)


def _finding(aws: Aws, need: Need) -> Finding:
    check = f"quota: {need.what}"
    try:
        answer = aws.read(
            "service-quotas", "get_service_quota", ServiceCode=need.service, QuotaCode=need.code
        )
    except ClientError as error:
        return Finding(
            check=check,
            ok=False,
            found=f"cannot be read: {errors.message(error)}",
            remedy=f"have servicequotas:GetServiceQuota allowed; the quota is {need.service} {need.code}",
            blocks=False,
        )
    limit = answer["Quota"]["Value"]
    return Finding(
        check=check,
        ok=need.used + need.count <= limit,
        found=f"{limit:g}, of which {need.used:g} are used",
        needed=f"{need.count:g}",
        remedy=f"ask for more in Service Quotas ({need.service} {need.code}) in {aws.region}, "
        "or take other instance types, another region or fewer nodes",
    )


def _instances(aws: Aws) -> list[dict[str, Any]]:
    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    reservations = aws.read("ec2", "describe_instances", "Reservations", Filters=states)
    return [instance for reservation in reservations for instance in reservation["Instances"]]


def _vcpus(aws: Aws, instance_types: Iterable[str]) -> dict[str, int]:
    asked = [{"Name": "instance-type", "Values": sorted(instance_types)}]
    rows = aws.read("ec2", "describe_instance_types", "InstanceTypes", Filters=asked)
    return {row["InstanceType"]: row["VCpuInfo"]["DefaultVCpus"] for row in rows}

"""The account's quotas: the limit, what is used, and what the cluster needs.

A new account's quotas for GPU nodes are 0 until AWS raises them on request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cloudrec.findings import Finding
from cloudrec.providers.aws import errors, offers
from cloudrec.providers.aws.api.driver import as_map
from cloudrec.providers.aws.nodes import nodes
from cloudrec.providers.base.offers import ON_DEMAND, SPOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from types_boto3_ec2.type_defs import AddressTypeDef, FilterTypeDef, InstanceTypeDef, VpcTypeDef

    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.layout import AwsLayout

# Quotas on vCPUs that run at once, for types that machines.csv does not have: families of instance types,
# capacity -> the quota's code ("Amazon EC2 instance type quotas" in EC2's developer guide). That page has no
# quota of P6 spot nodes.
_VCPUS: tuple[tuple[str, Mapping[str, str]], ...] = (
    (r"p[234]\w*\.", {SPOT: "L-7212CCBC", ON_DEMAND: "L-417A185B"}),
    (r"p5\w*\.", {SPOT: "L-C4BD4855", ON_DEMAND: "L-417A185B"}),
    (r"p\d", {ON_DEMAND: "L-417A185B"}),
    (r"g(r)?\d|vt\d", {SPOT: "L-3819A6DF", ON_DEMAND: "L-DB2E81BA"}),
    (r"[acdhimrtz]\d", {SPOT: "L-34B43A08", ON_DEMAND: "L-1216C47A"}),
)
_WITH_QUOTA = frozenset({ON_DEMAND, SPOT})  # no quota on vCPUs applies to a capacity block
_VPCS, _ADDRESSES = ("vpc", "L-F678F1CE"), ("ec2", "L-0263D0A3")
_CLUSTER_TAG = "eks:cluster-name"  # EKS sets it on every node


@dataclass(frozen=True, kw_only=True)
class Need:
    """How much of a quota the cluster needs.

    Attributes:
        what: the quota's name in findings.
        service: Service Quotas' code of the service ("ec2").
        code: Service Quotas' code of the quota.
        count: how much the whole cluster needs, whether it exists already or not.
        used: how much everything else in the account uses.
    """

    what: str
    service: str
    code: str
    count: float
    used: float


def findings(aws: Aws, layout: AwsLayout) -> list[Finding]:
    """Check each quota that the cluster needs.

    A quota that is too small for some candidates of the GPU nodes is a warning. It blocks only if no
    candidate is left.
    """
    instances = _instances(aws)
    vcpus = _vcpus(
        aws, {each["InstanceType"] for each in instances} | set(layout.settings.cpu_instance_types)
    )
    vcpus |= {name: hardware.vcpus for name, hardware in layout.hardware.items()}
    # The cluster's own nodes are part of what it needs: counted here too, they would count twice.
    others = [each for each in instances if as_map(each.get("Tags")).get(_CLUSTER_TAG) != layout.name]
    found = [_finding(aws, need) for need in _networks(aws, layout)]
    cpu = max((vcpus.get(name, 0) for name in layout.settings.cpu_instance_types), default=0)
    code = quota_of(layout.settings.cpu_instance_types[0], ON_DEMAND)
    found.append(
        _finding(aws, _vcpu_need(code, cpu * layout.settings.cpu_nodes, others, vcpus, "vCPUs of CPU nodes"))
    )
    return [*found, *_gpu_findings(aws, layout, others, vcpus)]


def quota_of(instance_type: str, capacity: str) -> str:
    """Return the code of the quota on vCPUs; empty if none is known, or none applies."""
    if (row := offers.TABLE.get(instance_type)) is not None:
        return {ON_DEMAND: row.quota_on_demand, SPOT: row.quota_spot}.get(capacity, "")
    for family, codes in _VCPUS:
        if re.match(family, instance_type):
            return codes.get(capacity, "")
    return ""


def _gpu_findings(
    aws: Aws, layout: AwsLayout, others: Sequence[InstanceTypeDef], vcpus: Mapping[str, int]
) -> list[Finding]:
    checked: dict[tuple[str, str], Finding] = {}
    for way in nodes.places(layout):
        key = way.instance_type, way.capacity
        if key in checked or way.capacity not in _WITH_QUOTA:
            continue
        count = layout.hardware[way.instance_type].vcpus * layout.cluster.nodes
        what = f"{way.capacity} vCPUs for {layout.cluster.nodes} x {way.instance_type}"
        code = quota_of(*key)
        checked[key] = (
            _finding(aws, _vcpu_need(code, count, others, vcpus, what)) if code else _unknown(what, count)
        )
    # A candidate whose quota is not known may have room.
    none = bool(checked) and not any(finding.ok or not finding.blocks for finding in checked.values())
    return [replace(finding, blocks=none and finding.blocks) for finding in checked.values()]


def _unknown(what: str, count: float) -> Finding:
    return Finding(
        check=f"quota: {what}",
        ok=False,
        found="its quota is not known",
        needed=f"{count:g}",
        remedy="look for the type in Service Quotas, Amazon EC2",
        blocks=False,
    )


def _vcpu_need(
    code: str, count: float, others: Sequence[InstanceTypeDef], vcpus: Mapping[str, int], what: str
) -> Need:
    used = sum(
        vcpus.get(each["InstanceType"], 0)
        for each in others
        if quota_of(each["InstanceType"], each.get("InstanceLifecycle", ON_DEMAND)) == code
    )
    return Need(what=what, service="ec2", code=code, count=count, used=used)


def _networks(aws: Aws, layout: AwsLayout) -> Iterable[Need]:
    vpcs = aws.rows(aws.ec2.get_paginator("describe_vpcs").paginate, lambda page: page.get("Vpcs"))
    addresses = aws.read(aws.ec2.describe_addresses).get("Addresses") or ()
    service, code = _VPCS
    yield Need(what="VPCs", service=service, code=code, count=1, used=_of_others(vpcs, layout))
    if layout.settings.nat:
        service, code = _ADDRESSES
        used = _of_others(addresses, layout)
        yield Need(what="elastic IP addresses", service=service, code=code, count=1, used=used)


def _of_others(rows: Sequence[VpcTypeDef] | Sequence[AddressTypeDef], layout: AwsLayout) -> int:
    return sum(as_map(row.get("Tags")).get("Name") != layout.name for row in rows)


def _finding(aws: Aws, need: Need) -> Finding:
    check = f"quota: {need.what}"
    try:
        answer = aws.read(aws.service_quotas.get_service_quota, ServiceCode=need.service, QuotaCode=need.code)
    except ClientError as error:
        # Reading quotas needs a permission that creating the cluster does not: `up` may succeed without it.
        return Finding(
            check=check,
            ok=False,
            found=f"cannot be read: {errors.message(error)}",
            remedy=f"allow servicequotas:GetServiceQuota; the quota is {need.service} {need.code}",
            blocks=False,
        )
    limit = answer["Quota"]["Value"]
    return Finding(
        check=check,
        ok=need.used + need.count <= limit,
        found=f"{limit:g}, of which {need.used:g} are used",
        needed=f"{need.count:g}",
        remedy=f"request an increase in Service Quotas ({need.service} {need.code}) in {aws.region}, "
        "or use other instance types, another region or fewer nodes",
    )


def _instances(aws: Aws) -> list[InstanceTypeDef]:
    reservations = aws.rows(
        aws.ec2.get_paginator("describe_instances").paginate,
        lambda page: page.get("Reservations"),
        Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}],
    )
    return [instance for reservation in reservations for instance in reservation["Instances"]]


def _vcpus(aws: Aws, instance_types: Iterable[str]) -> dict[str, int]:
    asked: list[FilterTypeDef] = [{"Name": "instance-type", "Values": sorted(instance_types)}]
    pages = aws.ec2.get_paginator("describe_instance_types").paginate
    rows = aws.rows(pages, lambda page: page.get("InstanceTypes"), Filters=asked)
    return {row["InstanceType"]: row["VCpuInfo"]["DefaultVCpus"] for row in rows}

"""Service quotas: AWS's defaults for a new account, until `/_control` sets others.

`quotas` of /_control: {"ec2/L-417A185B": 192}. Modules read a quota by `limit`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation, setting

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

# vCPUs of running instances by family, unless the comment says otherwise.
ON_DEMAND_STANDARD = "ec2/L-1216C47A"
ON_DEMAND_G = "ec2/L-DB2E81BA"
ON_DEMAND_P = "ec2/L-417A185B"
SPOT_STANDARD = "ec2/L-34B43A08"
SPOT_G = "ec2/L-3819A6DF"
SPOT_P = "ec2/L-7212CCBC"  # P4, P3, P2
SPOT_P5 = "ec2/L-C4BD4855"
ELASTIC_IPS = "ec2/L-0263D0A3"  # addresses in a region
VPCS = "vpc/L-F678F1CE"  # VPCs in a region
RULES = "vpc/L-0EA8095F"  # rules in, or out, of a security group
CLUSTERS = "eks/L-1194D53C"
LUSTRE_SCRATCH = "fsx/L-EE52B0AE"  # file systems
LUSTRE_PERSISTENT = "fsx/L-D5DEC09E"


@dataclass(frozen=True, kw_only=True)
class Quota:
    """A quota's name and AWS's default."""

    name: str
    value: float


QUOTAS: dict[str, Quota] = {
    ON_DEMAND_STANDARD: Quota(
        name="Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", value=5
    ),
    ON_DEMAND_G: Quota(name="Running On-Demand G and VT instances", value=0),
    ON_DEMAND_P: Quota(name="Running On-Demand P instances", value=0),
    SPOT_STANDARD: Quota(name="All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", value=5),
    SPOT_G: Quota(name="All G and VT Spot Instance Requests", value=0),
    SPOT_P: Quota(name="All P4, P3 and P2 Spot Instance Requests", value=0),
    SPOT_P5: Quota(name="All P5 Spot Instance Requests", value=0),
    ELASTIC_IPS: Quota(name="EC2-VPC Elastic IPs", value=5),
    VPCS: Quota(name="VPCs per Region", value=5),
    RULES: Quota(name="Inbound or outbound rules per security group", value=60),
    CLUSTERS: Quota(name="Clusters", value=100),
    LUSTRE_SCRATCH: Quota(name="Lustre Scratch file systems", value=100),
    LUSTRE_PERSISTENT: Quota(name="Lustre Persistent file systems", value=100),
}
DEFAULTS: dict[str, float] = {key: quota.value for key, quota in QUOTAS.items()}


@dataclass
class Quotas:
    """The quotas that /_control has set, by "service/code"."""

    values: dict[str, float] = field(default_factory=dict)


def limit(world: World, quota: str) -> float:
    """Return the value in force of "service/code"."""
    return world.state(Quotas).values.get(quota, DEFAULTS[quota])


def _read(world: World) -> dict[str, float]:
    return DEFAULTS | world.state(Quotas).values


def _write(world: World, wishes: dict[str, Any]) -> None:
    if unknown := sorted(set(wishes) - set(DEFAULTS)):
        raise ValueError(f"unknown quota {', '.join(unknown)}; there are: {', '.join(sorted(DEFAULTS))}")
    world.state(Quotas).values.update({name: float(value) for name, value in wishes.items()})


setting("quotas", read=_read, write=_write)


@operation("service-quotas", "GetServiceQuota", "GetAWSDefaultServiceQuota")
def get(call: Call) -> dict[str, Any]:
    """Return one quota."""
    key = f"{call.params['ServiceCode']}/{call.params['QuotaCode']}"
    if key not in QUOTAS:
        raise AwsError(
            "NoSuchResourceException", "The request failed because the specified quota does not exist."
        )
    return {"Quota": _row(call, key)}


@operation("service-quotas", "ListServiceQuotas", "ListAWSDefaultServiceQuotas")
def list_all(call: Call) -> dict[str, Any]:
    """Return the quotas of a service, in pages."""
    service = call.params["ServiceCode"]
    rows = [_row(call, key) for key in QUOTAS if key.startswith(f"{service}/")]
    if not rows:
        raise AwsError("NoSuchResourceException", f"The request failed because {service} does not exist.")
    start = int(call.params.get("NextToken", "0"))
    end = start + call.params.get("MaxResults", len(rows))
    more = {"NextToken": str(end)} if end < len(rows) else {}
    return {"Quotas": rows[start:end], **more}


def _row(call: Call, key: str) -> dict[str, Any]:
    service, _, code = key.partition("/")
    default = "Default" in call.action
    return {
        "ServiceCode": service,
        "ServiceName": service.upper(),
        "QuotaArn": f"arn:aws:servicequotas:{call.region}:{call.account}:{key}",
        "QuotaCode": code,
        "QuotaName": QUOTAS[key].name,
        "Value": DEFAULTS[key] if default else limit(call.world, key),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }

"""What is looked at before anything is made: credentials, quotas, versions, names that are taken."""

from __future__ import annotations

import ipaddress
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from cloudrec.cloud.leftovers import LEFTOVERS
from cloudrec.cloud.leftovers import finding as leftover_finding
from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.errors import CloudrecError, SpecError
from cloudrec.provider import Finding
from cloudrec.providers.aws import errors, leftovers, limits, nodes
from cloudrec.providers.aws.driver import as_map

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout

_SHORTEST_S = 900.0  # with less time left a cluster cannot be made
_SHORT_S = 3600.0


def credentials(aws: Aws) -> list[Finding]:
    """Check that AWS takes the credentials, and how long it will."""
    check = "credentials"
    try:
        who = aws.identity["Arn"]
        region = aws.region
    except SpecError:  # no region of that name
        raise
    except (BotoCoreError, ClientError, CloudrecError) as error:
        told = error if isinstance(error, CloudrecError) else errors.explain(error)
        return [Finding(check=check, ok=False, found=told.message, remedy=told.remedy or "")]
    left = _seconds_left(aws)
    if left is None or left >= _SHORT_S:
        return [Finding(check=check, ok=True, found=f"{who} in {region}")]
    return [
        Finding(
            check=check,
            ok=False,
            found=f"{who}: they end in {left / 60:.0f} minutes",
            needed=f"{_SHORTEST_S / 60:.0f} minutes at least, better {_SHORT_S / 60:.0f}",
            remedy="log in again (`aws sso login`)",
            blocks=left < _SHORTEST_S,
        )
    ]


def findings(aws: Aws, layout: Layout) -> list[Finding]:
    """Make every other check, several at once."""
    checks: list[Callable[[], Sequence[Finding]]] = [
        partial(limits.findings, aws, layout),
        partial(_types, layout),
        partial(_version, aws, layout),
        partial(_addresses, aws, layout),
        partial(_bucket, aws, layout),
        partial(_name, aws, layout),
        partial(_reservation, aws, layout),
        partial(_leftovers, aws, layout),
    ]
    with ThreadPoolExecutor(len(checks), thread_name_prefix="preflight") as pool:
        return [finding for found in pool.map(lambda check: check(), checks) for finding in found]


def _seconds_left(aws: Aws) -> float | None:
    """Seconds until the credentials end; None where they do not, or do not tell."""
    ends = getattr(aws.session.get_credentials(), "_expiry_time", None)  # botocore tells it nowhere else
    return (ends - datetime.now(UTC)).total_seconds() if ends is not None else None


def _types(layout: Layout) -> list[Finding]:
    ways = nodes.places(layout)
    found = []
    for name in layout.instance_types:
        zones = sorted({way.zone for way in ways if way.instance_type == name})
        found.append(
            Finding(
                check=f"instance type {name}",
                ok=bool(zones),
                found=", ".join(zones) or f"in none of {', '.join(layout.gpu_zones)}",
                remedy="take other zones, another region or other instance types",
                blocks=not ways,
            )
        )
    return found


def _version(aws: Aws, layout: Layout) -> list[Finding]:
    rows = aws.read("eks", "describe_cluster_versions", "clusterVersions")
    offered = sorted(row["clusterVersion"] for row in rows if row["versionStatus"] == "STANDARD_SUPPORT")
    wanted = layout.cluster.kubernetes_version
    return [
        Finding(
            check="Kubernetes version",
            ok=wanted in offered if wanted else bool(offered),
            found=f"EKS offers {', '.join(offered) or 'none'} in standard support",
            needed=wanted or "",
            remedy="take one of these (--set cluster.kubernetes_version=...), or leave it out",
            # What exists may be older than what can be made.
            blocks=not _exists(aws, layout),
        )
    ]


def _addresses(aws: Aws, layout: Layout) -> list[Finding]:
    """Networks with common addresses cannot be joined; as long as nobody joins them, all is well."""
    ours = ipaddress.IPv4Network(layout.settings.vpc_cidr)
    others = [
        row
        for row in aws.read("ec2", "describe_vpcs", "Vpcs")
        if as_map(row.get("Tags")).get(TAG_CLUSTER) != layout.title
        and ours.overlaps(ipaddress.IPv4Network(row["CidrBlock"]))
    ]
    return [
        Finding(
            check="addresses",
            ok=not others,
            found=", ".join(f"{row['VpcId']} has {row['CidrBlock']} too" for row in others)
            or f"{ours} is free",
            remedy="take another --set cluster.settings.vpc_cidr=... if they are ever to be joined",
            blocks=False,
        )
    ]


def _bucket(aws: Aws, layout: Layout) -> list[Finding]:
    """A bucket's name is unique in the world: one that we may not look at is somebody else's."""
    try:
        aws.read("s3", "head_bucket", Bucket=layout.bucket)
    except ClientError as error:
        if errors.is_absent(error):
            return [Finding(check="bucket", ok=True, found=f"{layout.bucket} is free")]
        return [
            Finding(
                check="bucket",
                ok=False,
                found=f"{layout.bucket} is somebody else's, or elsewhere ({errors.code(error)})",
                remedy="choose another name (--set cluster.settings.bucket=...)",
            )
        ]
    return [Finding(check="bucket", ok=True, found=f"{layout.bucket} is there")]


def _name(aws: Aws, layout: Layout) -> list[Finding]:
    try:
        tags = aws.read("eks", "describe_cluster", name=layout.name)["cluster"].get("tags", {})
    except ClientError as error:
        if not errors.is_absent(error):
            raise
        return [Finding(check="cluster name", ok=True, found=f"{layout.name} is free")]
    ours = tags.get(TAG_CLUSTER) == layout.title
    return [
        Finding(
            check="cluster name",
            ok=ours,
            found=f"{layout.name} is {'there' if ours else 'taken by a cluster that is not of cloudrec'}",
            remedy="choose another --cluster",
        )
    ]


def _reservation(aws: Aws, layout: Layout) -> list[Finding]:
    settings = layout.settings
    wanted = settings.capacity_block_id or settings.capacity_reservation_id
    if not wanted:
        return []
    try:
        rows = aws.read(
            "ec2", "describe_capacity_reservations", "CapacityReservations", CapacityReservationIds=[wanted]
        )
    except ClientError as error:
        if not errors.is_absent(error):
            raise
        rows = []
    state = rows[0]["State"] if rows else "not there"
    kind = rows[0]["InstanceType"] if rows else ""
    return [
        Finding(
            check=f"capacity reservation {wanted}",
            ok=state == "active" and kind in layout.instance_types,
            found=f"{state} {kind}".strip(),
            needed=f"active, of {' or '.join(layout.instance_types)}",
            remedy="wait until it begins, or name its instance type (--set cluster.instance_types=...)",
        )
    ]


def _leftovers(aws: Aws, layout: Layout) -> list[Finding]:
    found = leftovers.drivers(aws)[LEFTOVERS].search(layout.title)
    return [leftover_finding(found, "aws", layout.title)]


def _exists(aws: Aws, layout: Layout) -> bool:
    return any("is there" in finding.found for finding in _name(aws, layout))

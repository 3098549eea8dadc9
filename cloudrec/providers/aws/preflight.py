"""Checks before `up`: credentials, quotas, instance types, versions, addresses, names and reservations."""

from __future__ import annotations

import ipaddress
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.errors import CloudrecError, SpecError
from cloudrec.findings import Finding
from cloudrec.providers.aws import errors, quotas
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.api.driver import as_map
from cloudrec.providers.aws.cleanup import leftovers
from cloudrec.providers.aws.cluster import admins
from cloudrec.providers.aws.cluster.cluster import supported_versions
from cloudrec.providers.aws.identity import encryption
from cloudrec.providers.aws.nodes import nodes
from cloudrec.providers.base.capacity.block_check import block_findings
from cloudrec.providers.base.hardware import fabrics
from cloudrec.providers.base.leftovers import LEFTOVERS
from cloudrec.providers.base.leftovers import finding as leftover_finding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.layout import AwsLayout

# EKS refuses public access from these ("not allowed in publicAccessCidrs"), and labels with these prefixes.
_PRIVATE = tuple(
    map(
        ipaddress.IPv4Network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"),
    )
)
_RESERVED_LABELS = ("kubernetes.io", "k8s.io", "eks.amazonaws.com")
_SHORTEST_S = 900.0  # credentials that end sooner block: creating a cluster takes longer
_SHORT_S = 3600.0  # credentials that end sooner are a warning


def credentials(aws: Aws) -> list[Finding]:
    """Check that AWS accepts the credentials, and for how long.

    Raises:
        SpecError: AWS has no region of this name; no finding, since every later check would fail too.
    """
    check = "credentials"
    try:
        who = aws.identity["Arn"]
        region = aws.region
    except SpecError:
        raise
    except (CloudrecError, *errors.REFUSALS) as error:
        explained = errors.explain(error)
        return [Finding(check=check, ok=False, found=explained.message, remedy=explained.remedy or "")]
    left = _seconds_left(aws)
    if left is None or left >= _SHORT_S:
        return [Finding(check=check, ok=True, found=f"{who} in {region}")]
    return [
        Finding(
            check=check,
            ok=False,
            found=f"{who}: the credentials expire in {left / 60:.0f} minutes",
            needed=f"at least {_SHORTEST_S / 60:.0f} minutes, better {_SHORT_S / 60:.0f}",
            remedy="log in again (`aws sso login`)",
            blocks=left < _SHORTEST_S,
        )
    ]


def findings(aws: Aws, layout: AwsLayout) -> list[Finding]:
    """Run every other check, all at the same time."""
    checks: list[Callable[[], Sequence[Finding]]] = [
        partial(quotas.findings, aws, layout),
        partial(_types, layout),
        partial(fabrics.findings, layout.cluster, layout.instance_types, layout.hardware),
        partial(_settings, layout),
        partial(admins.finding, aws, layout),
        partial(encryption.finding, aws, layout),
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
    """Return the seconds until the credentials expire; None if they do not, or if that is not known."""
    # Only this private attribute of botocore has the time.
    ends = getattr(aws.session.get_credentials(), "_expiry_time", None)
    return (ends - datetime.now(UTC)).total_seconds() if ends is not None else None


def _settings(layout: AwsLayout) -> list[Finding]:
    """Refuse what AWS refuses only when much is made already, and what cannot work."""
    settings, found = layout.settings, list[tuple[str, str, str]]()
    private = [text for text in layout.cluster.access_blocks if _is_private(text)]
    if private:
        why = f"{', '.join(private)}: the API's public endpoint admits no private addresses"
        found.append(("access", why, "use --access private, or your network's public addresses"))
    reserved = [key for key in settings.labels if any(f"{part}/" in key for part in _RESERVED_LABELS)]
    if reserved:
        why = f"{', '.join(reserved)}: EKS reserves labels of {', '.join(_RESERVED_LABELS)}"
        found.append(("labels", why, "use other keys in cluster.settings.labels"))
    if not settings.nat:
        why = "without NAT, nodes cannot pull the GPU plug-in from nvcr.io: no GPU would be usable"
        found.append(("nat", why, "leave cluster.settings.nat out"))
    if not settings.nat and layout.storage_region != layout.region:
        # "Gateway endpoints for Amazon S3" (user guide of Amazon VPC): no requests to other regions.
        why = f"the S3 endpoint serves {layout.region}; without NAT, nodes do not reach {layout.storage}"
        found.append(("storage_of", why, "leave cluster.settings.nat or --storage-of out"))
    return [
        Finding(check=f"setting: {name}", ok=False, found=why, remedy=remedy) for name, why, remedy in found
    ]


def _is_private(block: str) -> bool:
    return any(map(ipaddress.IPv4Network(block).subnet_of, _PRIVATE))


def _types(layout: AwsLayout) -> list[Finding]:
    ways = nodes.places(layout)
    found = []
    for name in layout.instance_types:
        zones = sorted({way.zone for way in ways if way.instance_type == name})
        found.append(
            Finding(
                check=f"instance type {name}",
                ok=bool(zones),
                found=", ".join(zones) or f"not in {', '.join(layout.gpu_zones)}",
                remedy="use other zones, another region or other instance types",
                blocks=not ways,  # another type may still be offered
            )
        )
    return found


def _version(aws: Aws, layout: AwsLayout) -> list[Finding]:
    offered = sorted(supported_versions(aws))
    wanted = layout.cluster.kubernetes_version
    return [
        Finding(
            check="Kubernetes version",
            ok=wanted in offered if wanted else bool(offered),
            found=f"EKS offers {', '.join(offered) or 'none'} in standard support",
            needed=wanted or "",
            remedy="use one of these (--set cluster.kubernetes_version=...), or leave it out",
            # An existing cluster can have an older version than EKS still creates.
            blocks=not _is_ours(layout, _existing_tags(aws, layout)),
        )
    ]


def _addresses(aws: Aws, layout: AwsLayout) -> list[Finding]:
    """Warn about VPCs with the same addresses: only VPCs without common addresses can be peered."""
    ours = ipaddress.IPv4Network(layout.settings.vpc_cidr)
    others = [
        row
        for row in aws.rows(aws.ec2.get_paginator("describe_vpcs").paginate, lambda page: page.get("Vpcs"))
        if as_map(row.get("Tags")).get(TAG_CLUSTER) != layout.title
        and ours.overlaps(ipaddress.IPv4Network(row["CidrBlock"]))
    ]
    return [
        Finding(
            check="addresses",
            ok=not others,
            found=", ".join(f"{row['VpcId']} has {row['CidrBlock']} too" for row in others)
            or f"{ours} is free",
            remedy="choose another --set cluster.settings.vpc_cidr=... if these VPCs are to be peered",
            blocks=False,
        )
    ]


def _bucket(aws: Aws, layout: AwsLayout) -> list[Finding]:
    """Check that the bucket's name is free, or the bucket ours: names are unique among all AWS accounts."""
    if not layout.has_own_storage:
        return [_shared_bucket(aws, layout)]
    try:
        aws.read(aws.s3.head_bucket, Bucket=layout.bucket)
    except ClientError as error:
        if errors.is_absent(error):
            return [Finding(check="bucket", ok=True, found=f"{layout.bucket} is free")]
        return [
            Finding(
                check="bucket",
                ok=False,
                # The reply to HEAD has no body, and so no reason.
                found=f"{layout.bucket} belongs to another account or region ({errors.code(error)}), or you "
                "may not do s3:ListBucket",
                remedy="choose another name (--set cluster.settings.bucket=...), or allow s3:ListBucket",
            )
        ]
    return [Finding(check="bucket", ok=True, found=f"{layout.bucket} exists")]


def _shared_bucket(aws: Aws, layout: AwsLayout) -> Finding:
    """Check that the bucket of the other cluster exists, and that its objects can be listed."""
    why = ""
    try:
        aws.read(aws.s3.head_bucket, Bucket=layout.bucket)
    except ClientError as error:
        code = errors.code(error)
        why = "does not exist" if errors.is_absent(error) else f"cannot be read by s3:ListBucket ({code})"
    first = layout.cluster.storage_of
    return Finding(
        check="bucket",
        ok=not why,
        found=f"{layout.bucket} of cluster {first} in {layout.storage_region} {why or 'exists'}",
        needed="a bucket that these credentials may list",
        remedy=f"`cloudrec up aws --cluster {first}` makes it again; or allow s3:ListBucket",
    )


def _name(aws: Aws, layout: AwsLayout) -> list[Finding]:
    tags = _existing_tags(aws, layout)
    if tags is None:
        return [Finding(check="cluster name", ok=True, found=f"{layout.name} is free")]
    ours = _is_ours(layout, tags)
    return [
        Finding(
            check="cluster name",
            ok=ours,
            found=f"{layout.name} {'exists' if ours else 'is taken by a cluster that is not of cloudrec'}",
            remedy="choose another --cluster",
        )
    ]


def _reservation(aws: Aws, layout: AwsLayout) -> list[Finding]:
    settings = layout.settings
    wanted = settings.capacity_block_id or settings.capacity_reservation_id
    if layout.cluster.block is not None or not wanted:
        return block_findings(layout.cluster, "capacity block")
    try:
        rows = aws.rows(
            aws.ec2.get_paginator("describe_capacity_reservations").paginate,
            lambda page: page.get("CapacityReservations"),
            CapacityReservationIds=[wanted],
        )
    except ClientError as error:
        if not errors.is_absent(error):
            raise
        rows = []
    state: str = rows[0]["State"] if rows else "not found"
    kind, zone = (rows[0]["InstanceType"], rows[0]["AvailabilityZone"]) if rows else ("", "")
    # Nodes of this cluster that run in it are not available, but are those that are asked for.
    count = rows[0]["TotalInstanceCount"] if rows else 0
    return [
        Finding(
            check=f"capacity reservation {wanted}",
            ok=state == "active"
            and kind in layout.instance_types
            and zone in layout.gpu_zones
            and count >= layout.cluster.nodes,
            found=f"{state} {f'{count} x {kind} in {zone}' if rows else ''}".strip(),
            needed=f"active, {layout.cluster.nodes} x {' or '.join(layout.instance_types)} in "
            f"{' or '.join(layout.gpu_zones)}",
            remedy="wait until it starts, or name its instance type and zone (--set "
            "cluster.instance_types=... --zones ...)",
        )
    ]


def _leftovers(aws: Aws, layout: AwsLayout) -> list[Finding]:
    found = leftovers.drivers(aws)[LEFTOVERS].search(layout.title)
    return [leftover_finding(found, "aws", layout.title)]


def _is_ours(layout: AwsLayout, tags: Mapping[str, str] | None) -> bool:
    return tags is not None and tags.get(TAG_CLUSTER) == layout.title


def _existing_tags(aws: Aws, layout: AwsLayout) -> Mapping[str, str] | None:
    """Return the tags of the EKS cluster of this name, cloudrec's or not; None if there is none."""
    try:
        return eks.described(aws, layout.name).get("tags", {})
    except ClientError as error:
        if errors.is_absent(error):
            return None
        raise

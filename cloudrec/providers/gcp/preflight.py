"""The checks before `up`: credentials, APIs, quotas, versions and names in use."""

from __future__ import annotations

import ipaddress
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from google.api_core import exceptions as api
from google.auth.transport.requests import Request

from cloudrec.errors import CloudrecError, SpecError
from cloudrec.findings import Finding
from cloudrec.providers.base.capacity.block_check import block_findings
from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.base.hardware import fabrics
from cloudrec.providers.base.leftovers import LEFTOVERS
from cloudrec.providers.base.leftovers import finding as leftover_finding
from cloudrec.providers.gcp import errors, quotas
from cloudrec.providers.gcp.api import apis, gke, ids, labels, policies, sdk
from cloudrec.providers.gcp.cleanup import leftovers
from cloudrec.providers.gcp.cluster.cluster import GcpClusterDriver
from cloudrec.providers.gcp.identity import identity, prepared
from cloudrec.providers.gcp.network import network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout

_ACTIVE = "ACTIVE"
_TIMEOUT_S = 60.0


def credentials(gcp: Gcp) -> list[Finding]:
    """Check that Google accepts the credentials, and the project is active and has what a plan needs."""
    try:
        gcp.repeat(lambda: gcp.credentials.refresh(Request()))
        if off := _without_plan(gcp):
            return [_lacking(gcp.project, off)]
        project, state, region = gcp.project, gcp.account.state.name, gcp.region
    except SpecError:  # an unknown region is an error in the spec, not in the credentials
        raise
    except (CloudrecError, *errors.REFUSALS) as error:
        explained = errors.explain(error)
        return [
            Finding(check="credentials", ok=False, found=explained.message, remedy=explained.remedy or "")
        ]
    return [
        Finding(check="credentials", ok=True, found=f"{gcp.credentials.name or 'a user'} in {region}"),
        Finding(
            check="project",
            ok=state == _ACTIVE,
            found=f"{project} is {state}",
            needed=_ACTIVE,
            remedy="restore it (`gcloud projects undelete`), or set GOOGLE_CLOUD_PROJECT to another project",
        ),
    ]


def _lacking(project: str, names: Sequence[str]) -> Finding:
    return Finding(
        check="APIs",
        ok=False,
        found=f"not enabled: {', '.join(names)}",
        needed="enabled before the first `up`",
        remedy=f"`gcloud services enable {' '.join(names)} --project {project}`; they work minutes later",
    )


def _without_plan(gcp: Gcp) -> list[str]:
    """Return the APIs without which nothing can be planned that the project has not enabled.

    Each call of a disabled API is refused with that API alone, so Service Usage is asked for all of them.
    """
    try:
        return apis.missing(gcp, apis.BASE)
    except api.GoogleAPICallError as error:
        if errors.is_disabled(error):
            return [apis.USAGE, *apis.BASE]
        if not isinstance(error, api.ClientError):
            raise
        return []  # the calls that follow say better what the credentials or the project lack


def findings(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    """Make every other check, in parallel."""
    checks: list[Callable[[], Sequence[Finding]]] = [
        partial(_billing, gcp),
        partial(_apis, gcp, layout),
        partial(quotas.findings, gcp, layout),
        partial(_types, layout),
        partial(fabrics.findings, layout.cluster, layout.instance_types, layout.hardware),
        partial(_version, gcp, layout),
        partial(_fabric_versions, gcp, layout),
        partial(_profiles, gcp, layout),
        partial(_addresses, gcp, layout),
        partial(_bucket, gcp, layout),
        partial(_name, gcp, layout),
        partial(_reservation, gcp, layout),
        partial(_key, layout),
        partial(_node_account, gcp, layout),
        partial(_end_account, gcp, layout),
        partial(_leftovers, gcp, layout),
    ]
    with ThreadPoolExecutor(len(checks), thread_name_prefix="preflight") as pool:
        return [finding for found in pool.map(lambda check: check(), checks) for finding in found]


def _billing(gcp: Gcp) -> list[Finding]:
    """Check that the project has an open billing account.

    A missing permission to read that is only a warning: the first creation shows it.
    """
    check = "billing"
    try:
        request = sdk.billing.GetProjectBillingInfoRequest(name=f"projects/{gcp.project}")
        info = gcp.read(gcp.rest(sdk.billing.CloudBillingClient).get_project_billing_info, request)
    except api.GoogleAPICallError as error:
        explained = errors.explain(error)
        remedy = explained.remedy or ""
        return [Finding(check=check, ok=False, found=explained.message, remedy=remedy, blocks=False)]
    return [
        Finding(
            check=check,
            ok=info.billing_enabled,
            found=info.billing_account_name or "no account is linked",
            needed="an open billing account",
            remedy=f"`gcloud billing projects link {gcp.project} --billing-account=...`",
        )
    ]


def _apis(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    names = apis.services(layout)
    missing = apis.missing(gcp, names)
    by_hand = f"`gcloud services enable {' '.join(missing)} --project {gcp.project}`"
    is_by_up = layout.settings.enable_apis
    return [
        Finding(
            check="APIs",
            ok=not missing,
            found=f"not enabled: {', '.join(missing)}" if missing else f"all {len(names)} are enabled",
            needed="enabled",
            remedy=f"`cloudrec up` enables them; by hand: {by_hand}"
            if is_by_up
            else f"{by_hand}, or let `cloudrec up` do it with --set cluster.settings.enable_apis=true",
            blocks=not is_by_up,
        )
    ]


def _types(layout: GcpLayout) -> list[Finding]:
    ways = layout.places()
    found = []
    for name in layout.instance_types:
        zones = sorted({way.zone for way in ways if way.instance_type == name})
        only = layout.hardware[name].only
        found.append(
            Finding(
                check=f"machine type {name}",
                ok=bool(zones),
                found=", ".join(zones)
                or (
                    f"sold as {' or '.join(only)} only"
                    if only and layout.offered.get(name)
                    else f"in none of {', '.join(layout.gpu_zones)}"
                ),
                remedy="choose other zones, another region, other instance types or another capacity type",
                blocks=not ways,  # one candidate is enough
            )
        )
    return found


def _version(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    driver, channel = GcpClusterDriver(gcp), layout.settings.release_channel
    offered = driver.offered_versions(channel, layout.location)
    wanted = layout.cluster.kubernetes_version
    minors = sorted({".".join(version.split(".")[:2]) for version in offered})
    return [
        Finding(
            check="Kubernetes version",
            ok=any(gke.is_of(version, wanted) for version in offered) if wanted else bool(offered),
            found=f"channel {channel} offers {', '.join(minors) or 'none'}",
            needed=wanted or "",
            remedy="choose one of these with --set cluster.kubernetes_version=..., or leave it out",
            # An existing cluster may have a version that GKE offers no longer for new ones.
            blocks=not driver.search(layout.title),
        )
    ]


def _fabric_versions(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    """Check that GKE's version has the fabric and the driver of each machine type."""
    since = {name: layout.hardware[name].gke_since for name in layout.instance_types}
    if not any(since.values()):
        return []
    wanted = layout.cluster.kubernetes_version
    offered = GcpClusterDriver(gcp).offered_versions(layout.settings.release_channel, layout.location)
    fits = [each for each in offered if not wanted or gke.is_of(each, wanted)]
    newest = max(fits, key=gke.version_key, default="")
    return [
        Finding(
            check=f"GKE version for {name}",
            ok=gke.version_key(newest) >= gke.version_key(first),
            found=f"the newest{f' of {wanted}' if wanted else ''} is {newest}",
            needed=f"{first} or later, for GPUDirect RDMA and the driver of its GPUs",
            remedy="choose a later one with --set cluster.kubernetes_version=..., or leave it out",
        )
        for name, first in since.items()
        if first and newest
    ]


def _profiles(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    """Check that each zone of the RDMA cards has the network profile with which their network is made."""
    calls = gcp.rest(sdk.compute.NetworkProfilesClient)
    found = []
    for zone in layout.rdma_zones:
        name = network.profile_name(zone)
        request = sdk.compute.GetNetworkProfileRequest(project=gcp.project, network_profile=name)
        there = gcp.get(calls.get, request) is not None
        found.append(
            Finding(
                check=f"network profile {name}",
                ok=there,
                found="it exists" if there else "it does not exist",
                needed=f"for the RDMA cards of nodes in {zone}",
                remedy="choose zones that have one with --set cluster.zones=...; `gcloud compute "
                "network-profiles list` names them",
            )
        )
    return found


def _addresses(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    """Check the addresses against other networks; an overlap only matters if the networks are peered."""
    settings = layout.settings
    blocks = {
        "nodes_cidr": settings.nodes_cidr,
        "pods_cidr": settings.pods_cidr,
        "services_cidr": settings.services_cidr,
        **({"gpu_cidr": settings.gpu_cidr} if layout.gpu_networks else {}),
    }
    ours = {name: ipaddress.IPv4Network(block) for name, block in blocks.items()}
    request = sdk.compute.AggregatedListSubnetworksRequest(project=gcp.project)
    scopes = gcp.rows(gcp.rest(sdk.compute.SubnetworksClient).aggregated_list, request)
    others = [
        (row.name, block)
        for _, listed in scopes
        for row in listed.subnetworks
        if not is_ours(labels.described(row.description), layout.title)
        for block in (row.ip_cidr_range, *(each.ip_cidr_range for each in row.secondary_ip_ranges))
        if block
    ]
    common = [
        f"{name} has {block}, as {setting} {mine}"
        for name, block in others
        for setting, mine in ours.items()
        if mine.overlaps(ipaddress.IPv4Network(block))
    ]
    return [
        Finding(
            check="addresses",
            ok=not common,
            found="; ".join(common) or f"{', '.join(str(block) for block in ours.values())} are free",
            remedy="choose other blocks with --set cluster.settings... if the networks are ever peered",
            blocks=False,
        )
    ]


def _bucket(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    """Check the bucket's name. Names are global: a bucket that cannot be read is another owner's."""
    name, shared = layout.bucket, layout.cluster.storage
    calls = gcp.storage
    try:
        there = gcp.or_none(
            lambda: gcp.repeat(lambda: calls.get_bucket(name, retry=None, timeout=_TIMEOUT_S))
        )
    except api.Forbidden:
        return [
            Finding(
                check="bucket",
                ok=False,
                found=f"{name} belongs to another owner",
                remedy="choose another name with --set cluster.settings.bucket=..."
                if shared is None
                else "use credentials with storage.buckets.get, or leave --storage-of out",
            )
        ]
    if shared is not None:
        return [
            Finding(
                check="bucket",
                ok=there is not None,
                found=f"{name} of cluster {shared.cluster} in {shared.region} "
                f"{'does not exist' if there is None else 'exists'}",
                remedy=f"`cloudrec up gcp --cluster {shared.cluster}` makes it again",
            )
        ]
    return [Finding(check="bucket", ok=True, found=f"{name} {'is free' if there is None else 'exists'}")]


def _name(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    name = ids.name(layout.cluster_path)
    request = sdk.container.GetClusterRequest(name=layout.cluster_path)
    row = gcp.get(gcp.container.get_cluster, request)
    ours = row is None or is_ours(labels.decode(row.resource_labels), layout.title)
    state = "is free" if row is None else "exists" if ours else "exists, and was not created by cloudrec"
    remedy = "choose another name with --cluster"
    return [Finding(check="cluster name", ok=ours, found=f"{name} {state}", remedy=remedy)]


def _reservation(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    if layout.cluster.block is not None:
        return block_findings(layout.cluster, "block")
    wanted = layout.settings.reservation
    if not wanted:
        return []
    project = wanted.split("/")[1] if "/" in wanted else gcp.project
    request = sdk.compute.AggregatedListReservationsRequest(project=project)
    scopes = gcp.rows(gcp.rest(sdk.compute.ReservationsClient).aggregated_list, request)
    rows = [row for _, listed in scopes for row in listed.reservations if row.name == ids.name(wanted)]
    found = [
        f"{row.status}, {row.specific_reservation.count} x "
        f"{row.specific_reservation.instance_properties.machine_type} in {ids.name(row.zone)}"
        for row in rows
    ]
    fits = any(
        row.status == "READY"
        and row.specific_reservation.count >= layout.cluster.nodes
        and row.specific_reservation.instance_properties.machine_type in layout.instance_types
        and ids.name(row.zone) in layout.gpu_zones
        for row in rows
    )
    return [
        Finding(
            check=f"reservation {wanted}",
            ok=fits,
            found="; ".join(found) or "it does not exist",
            needed=f"READY, {layout.cluster.nodes} x {' or '.join(layout.instance_types)} "
            f"in {' or '.join(layout.gpu_zones)}",
            remedy="set its zone and machine type with --set cluster.zones=... cluster.instance_types=...",
        )
    ]


def _key(layout: GcpLayout) -> list[Finding]:
    """Check that the key is in the region of the resources that it encrypts."""
    key = layout.settings.kms_key
    if not key:
        return []
    where = key.split("/")[3]
    return [
        Finding(
            check="key",
            ok=where == layout.region,
            found=f"it is in {where}",
            needed=layout.region,
            remedy="choose a key in the cluster's region with --set cluster.settings.kms_key=...",
        )
    ]


def _node_account(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    """Check the roles of the account that an administrator made for all nodes.

    A missing one is a warning: the account may have the permissions by another role or a group.
    """
    if not layout.shared_account:
        return []
    grants = policies.grants(gcp, f"projects/{gcp.project}")
    member = f"serviceAccount:{layout.shared_account}"
    there = {grant.role for grant in grants if grant.member == member}
    missing = [role for role in identity.SHARED_ROLES if role not in there]
    return [
        Finding(
            check="node account",
            ok=not missing,
            found=f"{layout.shared_account} "
            + (f"lacks {', '.join(missing)}" if missing else "has its roles"),
            needed="to pull images and to write logs and metrics",
            remedy=f"`gcloud projects add-iam-policy-binding {gcp.project} --member {member} --condition "
            "None --role ROLE` for each (infra/gcp/README.md)",
            blocks=False,
        )
    ]


def _end_account(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    """Check that the account that an administrator made to end clusters may start the workflow that does.

    Without that the end would not hold while no guard runs, so this blocks.
    """
    if not (layout.shared_end and layout.is_end_movable):
        return []
    member = f"serviceAccount:{layout.shared_end}"
    grants = policies.grants(gcp, f"projects/{gcp.project}")
    roles = {grant.role for grant in grants if grant.member == member and not grant.expression}
    is_able = any(prepared.starts_workflows(gcp, role) for role in roles)
    return [
        Finding(
            check="end account",
            ok=is_able,
            found=f"{layout.shared_end} {'may' if is_able else 'may not'} start workflows",
            needed="to start the workflow that ends a cluster with a budget",
            remedy=f"`gcloud projects add-iam-policy-binding {gcp.project} --member {member} --condition "
            f"None --role {layout.starter_role}` (infra/gcp/README.md), or use --ttl without --budget",
        )
    ]


def _leftovers(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    found = leftovers.drivers(gcp)[LEFTOVERS].search(layout.title)
    return [leftover_finding(found, "gcp", layout.title)]

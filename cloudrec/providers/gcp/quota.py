"""What is looked at before anything is made: credentials, APIs, quotas, versions, names that are taken."""

from __future__ import annotations

import ipaddress
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from google.api_core import exceptions as api
from google.auth.transport.requests import Request

from cloudrec.cloud.driver import is_ours
from cloudrec.cloud.leftovers import LEFTOVERS
from cloudrec.cloud.leftovers import finding as leftover_finding
from cloudrec.errors import CloudrecError, SpecError
from cloudrec.provider import Finding
from cloudrec.providers.gcp import apis, errors, gke, ids, labels, leftovers, limits, nodes
from cloudrec.providers.gcp.cluster import ClusterDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.layout import Layout

_ACTIVE = "ACTIVE"
_TIMEOUT_S = 60.0


def credentials(gcp: Gcp) -> list[Finding]:
    """Check that Google takes the credentials, for a project that can be used and is paid for."""
    try:
        gcp.repeat(lambda: gcp.credentials.refresh(Request()))
        project, state, region = gcp.project, gcp.account.state.name, gcp.region
    except SpecError:  # no region of that name
        raise
    except (CloudrecError, *errors.REFUSALS) as error:
        told = errors.explain(error)
        return [Finding(check="credentials", ok=False, found=told.message, remedy=told.remedy or "")]
    return [
        Finding(check="credentials", ok=True, found=f"{gcp.credentials.name or 'a user'} in {region}"),
        Finding(
            check="project",
            ok=state == _ACTIVE,
            found=f"{project} is {state}",
            needed=_ACTIVE,
            remedy="restore it (`gcloud projects undelete`), or take another with GOOGLE_CLOUD_PROJECT",
        ),
    ]


def findings(gcp: Gcp, layout: Layout) -> list[Finding]:
    """Make every other check, several at once."""
    checks: list[Callable[[], Sequence[Finding]]] = [
        partial(_billing, gcp),
        partial(_apis, gcp, layout),
        partial(limits.findings, gcp, layout),
        partial(_types, layout),
        partial(_version, gcp, layout),
        partial(_addresses, gcp, layout),
        partial(_bucket, gcp, layout),
        partial(_name, gcp, layout),
        partial(_reservation, gcp, layout),
        partial(_key, layout),
        partial(_leftovers, gcp, layout),
    ]
    with ThreadPoolExecutor(len(checks), thread_name_prefix="preflight") as pool:
        return [finding for found in pool.map(lambda check: check(), checks) for finding in found]


def _billing(gcp: Gcp) -> list[Finding]:
    """Whether somebody pays; who may not see that learns it when the first thing is made."""
    check = "billing"
    try:
        info = gcp.read(gcp.client("billing").get_project_billing_info, name=f"projects/{gcp.project}")
    except api.GoogleAPICallError as error:
        told = errors.explain(error)
        return [Finding(check=check, ok=False, found=told.message, remedy=told.remedy or "", blocks=False)]
    return [
        Finding(
            check=check,
            ok=info.billing_enabled,
            found=info.billing_account_name or "no account is linked",
            needed="an open billing account",
            remedy=f"`gcloud billing projects link {gcp.project} --billing-account=...`",
        )
    ]


def _apis(gcp: Gcp, layout: Layout) -> list[Finding]:
    names = apis.services(layout)
    missing = apis.missing(gcp, names)
    return [
        Finding(
            check="APIs",
            ok=not missing,
            found=f"not enabled: {', '.join(missing)}" if missing else f"all {len(names)} are enabled",
            needed="enabled",
            remedy=f"`gcloud services enable {' '.join(missing)} --project {gcp.project}`, or let "
            "`cloudrec up` do it with --set cluster.settings.enable_apis=true",
            blocks=not layout.settings.enable_apis,
        )
    ]


def _types(layout: Layout) -> list[Finding]:
    ways = nodes.places(layout)
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
                    f"sold as {' or '.join(only)} alone"
                    if only and layout.offered.get(name)
                    else f"in none of {', '.join(layout.gpu_zones)}"
                ),
                remedy="take other zones, another region, other instance types or another capacity",
                blocks=not ways,
            )
        )
    return found


def _version(gcp: Gcp, layout: Layout) -> list[Finding]:
    driver, channel = ClusterDriver(gcp), layout.settings.release_channel
    offered = driver.offered_versions(channel, layout.location)
    wanted = layout.cluster.kubernetes_version
    minors = sorted({".".join(version.split(".")[:2]) for version in offered})
    return [
        Finding(
            check="Kubernetes version",
            ok=any(gke.is_of(version, wanted) for version in offered) if wanted else bool(offered),
            found=f"channel {channel} offers {', '.join(minors) or 'none'}",
            needed=wanted or "",
            remedy="take one of these (--set cluster.kubernetes_version=...), or leave it out",
            # What exists may be older than what can be made.
            blocks=not driver.search(layout.title),
        )
    ]


def _addresses(gcp: Gcp, layout: Layout) -> list[Finding]:
    """Networks with common addresses cannot be joined; as long as nobody joins them, all is well."""
    settings = layout.settings
    ours = {
        name: ipaddress.IPv4Network(getattr(settings, name))
        for name in (
            "nodes_cidr",
            "pods_cidr",
            "services_cidr",
            *(["gpu_cidr"] if layout.gpu_networks else []),
        )
    }
    scopes = gcp.rows(gcp.compute("subnetworks").aggregated_list, project=gcp.project)
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
            remedy="take other blocks with --set cluster.settings... if the networks are ever to be joined",
            blocks=False,
        )
    ]


def _bucket(gcp: Gcp, layout: Layout) -> list[Finding]:
    """A bucket's name is unique in the world: one that we may not look at is somebody else's."""
    name = layout.bucket
    get = partial(gcp.storage.get_bucket, name, retry=None, timeout=_TIMEOUT_S)
    try:
        there = gcp.or_none(partial(gcp.repeat, get))
    except api.Forbidden:
        return [
            Finding(
                check="bucket",
                ok=False,
                found=f"{name} is somebody else's",
                remedy="choose another name (--set cluster.settings.bucket=...)",
            )
        ]
    return [Finding(check="bucket", ok=True, found=f"{name} is {'free' if there is None else 'there'}")]


def _name(gcp: Gcp, layout: Layout) -> list[Finding]:
    name = ids.name(layout.cluster_path)
    row = gcp.get(gcp.client(gke.CONTAINER).get_cluster, name=layout.cluster_path)
    ours = row is None or is_ours(labels.decode(row.resource_labels), layout.title)
    state = "free" if row is None else "there" if ours else "taken by a cluster that is not of cloudrec"
    return [
        Finding(check="cluster name", ok=ours, found=f"{name} is {state}", remedy="choose another --cluster")
    ]


def _reservation(gcp: Gcp, layout: Layout) -> list[Finding]:
    wanted = layout.settings.reservation
    if not wanted:
        return []
    project = wanted.split("/")[1] if "/" in wanted else gcp.project
    scopes = gcp.rows(gcp.compute("reservations").aggregated_list, project=project)
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
            found="; ".join(found) or "not there",
            needed=f"READY, {layout.cluster.nodes} x {' or '.join(layout.instance_types)} "
            f"in {' or '.join(layout.gpu_zones)}",
            remedy="name its zone and its machine type (--set cluster.zones=... cluster.instance_types=...)",
        )
    ]


def _key(layout: Layout) -> list[Finding]:
    """A key must be where what it encrypts is."""
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
            remedy="take a key of the cluster's region (--set cluster.settings.kms_key=...)",
        )
    ]


def _leftovers(gcp: Gcp, layout: Layout) -> list[Finding]:
    found = leftovers.drivers(gcp)[LEFTOVERS].search(layout.title)
    return [leftover_finding(found, "gcp", layout.title)]

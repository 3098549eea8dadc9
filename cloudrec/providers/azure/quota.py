"""What is looked at before anything is made: credentials, quotas, versions, names that are taken."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError

from cloudrec.cloud.driver import is_ours
from cloudrec.errors import PreflightError
from cloudrec.provider import Finding
from cloudrec.providers.azure import errors, groups, ids, leftovers, limits, nodes, offers
from cloudrec.providers.azure.cluster import ClusterDriver
from cloudrec.providers.azure.rows import group_name, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.layout import Layout

_SHORTEST_S = 300.0  # with less time left nothing is begun; azure-identity renews what it can


def credentials(azure: Azure) -> list[Finding]:
    """Check that Azure takes the credentials, for a subscription that can be used."""
    try:
        caller, account, region = azure.caller, azure.account, azure.region
    except (AzureError, PreflightError) as error:
        told = errors.explain(error)
        return [Finding(check="credentials", ok=False, found=told.message, remedy=told.remedy or "")]
    who = f"{caller.name or caller.object_id} of tenant {caller.tenant}"
    state, tenant = str(plain(account.state)), str(account.tenant_id or caller.tenant)
    return [
        Finding(
            check="credentials",
            ok=caller.expires - time.time() >= _SHORTEST_S,
            found=f"{who} in {region}",
            needed=f"a token that lasts {_SHORTEST_S / 60:.0f} minutes",
            remedy="log in again (`az login`)",
        ),
        Finding(
            check="tenant",
            ok=tenant.lower() == caller.tenant.lower(),
            found=f"the credentials are of tenant {caller.tenant}, the subscription of {tenant}",
            needed="the same",
            remedy=f"log in to the subscription's tenant (`az login --tenant {tenant}`)",
        ),
        Finding(
            check="subscription",
            ok=state == "Enabled",
            found=f"{account.display_name} ({azure.subscription}) is {state}",
            needed="Enabled",
            remedy="have it enabled (its bill, or its spending limit), or set AZURE_SUBSCRIPTION_ID",
        ),
    ]


def findings(azure: Azure, layout: Layout) -> list[Finding]:
    """Make every other check, several at once."""
    checks: list[Callable[[], Sequence[Finding]]] = [
        partial(_registrations, azure, layout),
        partial(limits.findings, azure, layout),
        partial(_types, azure, layout),
        partial(_version, azure, layout),
        partial(_storage_account, azure, layout),
        partial(_registry, azure, layout),
        partial(_name, azure, layout),
        partial(_reservation, azure, layout),
        partial(_leftovers, azure, layout),
    ]
    with ThreadPoolExecutor(len(checks), thread_name_prefix="preflight") as pool:
        return [finding for found in pool.map(lambda check: check(), checks) for finding in found]


def _registrations(azure: Azure, layout: Layout) -> list[Finding]:
    """What the subscription is not registered for, `up` registers; a feature may take half an hour."""
    driver = groups.drivers(azure)[groups.REGISTRATION]
    wanted = [one for one in groups.resources(layout) if one.kind == groups.REGISTRATION]
    missing = [
        one.properties.get("namespace", one.properties.get("feature"))
        for one in wanted
        if driver.find(one) is None
    ]
    return [
        Finding(
            check="registrations",
            ok=not missing,
            found=f"not registered: {', '.join(missing)}" if missing else f"all {len(wanted)} are there",
            needed="registered",
            remedy="`cloudrec up` registers them, where the credentials may; else "
            "`az provider register --namespace` and `az feature register`",
            blocks=False,
        )
    ]


def _types(azure: Azure, layout: Layout) -> list[Finding]:
    ways, sizes = nodes.places(layout), offers.skus(azure, layout.instance_types)
    found = []
    for name in layout.instance_types:
        zones = sorted({way.zone for way in ways if way.instance_type == name})
        size = sizes.get(name)
        refused = size.restriction if size is not None else f"not sold in {layout.region}"
        where = f"zone {', '.join(zones)}" if any(zones) else layout.region
        found.append(
            Finding(
                check=f"VM size {name}",
                ok=bool(zones) and not refused,
                found=refused or (where if zones else f"in none of the zones {', '.join(layout.gpu_zones)}"),
                needed="open to the subscription",
                remedy="take other zones, another region or other instance types; for what is restricted, "
                "ask Azure's support to open the region (Usage + quotas in the portal)",
                blocks=not ways or all(each.restriction for each in sizes.values()),
            )
        )
    return found


def _version(azure: Azure, layout: Layout) -> list[Finding]:
    driver = ClusterDriver(azure)
    offered = driver.offered_versions()
    wanted = layout.cluster.kubernetes_version
    minor = ".".join(wanted.split(".")[:2]) if wanted else ""
    return [
        Finding(
            check="Kubernetes version",
            ok=minor in offered if wanted else bool(offered),
            found=f"AKS offers {', '.join(offered) or 'none'} in standard support",
            needed=wanted or "",
            remedy="take one of these (--set cluster.kubernetes_version=...), or leave it out",
            # What exists may be older than what can be made.
            blocks=not driver.search(layout.title),
        )
    ]


def _storage_account(azure: Azure, layout: Layout) -> list[Finding]:
    """A storage account's name is unique in the world."""
    client, models = azure.client("storage"), azure.models("storage")
    name = layout.storage_account
    there = azure.get(client.storage_accounts.get_properties, layout.group, name)
    if there is not None:
        return [_named("storage account", name, "is there", ok=is_ours(there.tags or {}, layout.title))]
    asked = models.StorageAccountCheckNameAvailabilityParameters(name=name)
    answer = azure.read(client.storage_accounts.check_name_availability, asked)
    return [_availability("storage account", name, answer, "storage_account")]


def _registry(azure: Azure, layout: Layout) -> list[Finding]:
    client, models = azure.client("containerregistry"), azure.models("containerregistry")
    name = layout.registry
    there = azure.get(client.registries.get, layout.group, name)
    if there is not None:
        return [_named("registry", name, "is there", ok=is_ours(there.tags or {}, layout.title))]
    asked = models.RegistryNameCheckRequest(name=name, type="Microsoft.ContainerRegistry/registries")
    answer = azure.read(client.registries.check_name_availability, asked)
    return [_availability("registry", name, answer, "registry")]


def _availability(what: str, name: str, answer: Any, setting: str) -> Finding:  # noqa: ANN401 - the SDK's model
    return Finding(
        check=what,
        ok=bool(answer.name_available),
        found=f"{name} is free"
        if answer.name_available
        else f"{name}: {answer.message or plain(answer.reason)}",
        needed="a name that nobody in the world has",
        remedy=f"choose another name (--set cluster.settings.{setting}=...)",
    )


def _named(what: str, name: str, state: str, *, ok: bool) -> Finding:
    return Finding(
        check=what,
        ok=ok,
        found=f"{name} {state}" if ok else f"{name} {state}, and is not of cloudrec",
        remedy="choose another --cluster",
    )


def _name(azure: Azure, layout: Layout) -> list[Finding]:
    calls = azure.client("containerservice").managed_clusters
    row = azure.get(calls.get, layout.group, layout.name)
    if row is not None:
        return [_named("cluster name", layout.name, "is there", ok=is_ours(row.tags or {}, layout.title))]
    group = azure.get(azure.client("resources").resource_groups.get, group_name(layout.title))
    if group is not None and not is_ours(group.tags or {}, layout.title):
        return [_named("cluster name", f"resource group {layout.group}", "is there", ok=False)]
    return [_named("cluster name", layout.name, "is free", ok=True)]


def _reservation(azure: Azure, layout: Layout) -> list[Finding]:
    wanted = layout.settings.capacity_reservation_group
    if not wanted:
        return []
    client, names = azure.client("compute"), (ids.group_of(wanted), *ids.names(wanted))
    row = azure.get(client.capacity_reservation_groups.get, *names)
    reserved = azure.rows(client.capacity_reservations.list_by_capacity_reservation_group, *names)
    of_ours = {
        each.sku.name: each.sku.capacity for each in reserved if each.sku.name in layout.instance_types
    }
    found = ", ".join(f"{count} x {name}" for name, count in of_ours.items())
    return [
        Finding(
            check="capacity reservation group",
            ok=row is not None and any((count or 0) >= layout.cluster.nodes for count in of_ours.values()),
            found=(found or "nothing of these sizes") if row is not None else f"{wanted} is not there",
            needed=f"{layout.cluster.nodes} x {' or '.join(layout.instance_types)}",
            remedy="reserve more in it, or name what it has (--set cluster.instance_types=...)",
        )
    ]


def _leftovers(azure: Azure, layout: Layout) -> list[Finding]:
    driver = leftovers.drivers(azure)[leftovers.LEFTOVERS]
    left = [seen for seen in driver.search(layout.title) if seen.kind != leftovers.LEFTOVERS]
    return [
        Finding(
            check="leftovers",
            ok=not left,
            found=", ".join(f"{seen.kind} {seen.identity}" for seen in left) or "none",
            remedy=f"cloudrec down azure --cluster {layout.title} removes them",
            blocks=False,
        )
    ]

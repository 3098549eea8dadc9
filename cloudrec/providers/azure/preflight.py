"""Checks before the first change: credentials, quotas, versions, names that are taken."""

from __future__ import annotations

import ipaddress
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError
from cloudrec.findings import Finding
from cloudrec.providers.azure import errors, groups, offers, quotas
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.rows import group_name, place, plain
from cloudrec.providers.azure.cleanup import leftovers
from cloudrec.providers.azure.cluster.cluster import AzureClusterDriver
from cloudrec.providers.azure.nodes import nodes
from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.base.hardware import fabrics
from cloudrec.providers.base.leftovers import LEFTOVERS
from cloudrec.providers.base.leftovers import finding as leftover_finding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.layout import AzureLayout

# A token that ends sooner is not enough to begin with. azure-identity renews it long before, where it can.
_SHORTEST_S = 300.0
# "Private IP address ranges (as defined in RFC 1918) are not allowed" in a storage account's IP rules
# (Azure/azure-cli #7417, #13828), and `az aks` refuses a range that is not global as an authorized one
# (Azure/azure-cli-extensions #1764). A request from any of these has another address at a public endpoint.
_PRIVATE = tuple(
    map(
        ipaddress.IPv4Network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"),
    )
)


def credentials(azure: Azure) -> list[Finding]:
    """Check that Azure accepts the credentials, and that the subscription is enabled and in their tenant."""
    try:
        caller, account, region = azure.caller, azure.account, azure.region
    except (*errors.REFUSALS, PreflightError) as error:
        explained = errors.explain(error)
        return [
            Finding(check="credentials", ok=False, found=explained.message, remedy=explained.remedy or "")
        ]
    name = f"{caller.name or caller.object_id} of tenant {caller.tenant}"
    state, tenant = plain(account.state), str(account.tenant_id or caller.tenant)
    return [
        Finding(
            check="credentials",
            ok=caller.expires - time.time() >= _SHORTEST_S,
            found=f"{name} in {region}",
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


def findings(azure: Azure, layout: AzureLayout) -> list[Finding]:
    """Return the findings of all other checks, which run at the same time."""
    checks: list[Callable[[], Sequence[Finding]]] = [
        partial(_access, layout),
        partial(_registrations, azure, layout),
        partial(quotas.findings, azure, layout),
        partial(_types, azure, layout),
        partial(fabrics.findings, layout.cluster, layout.instance_types, layout.hardware),
        partial(_version, azure, layout),
        partial(_storage_account, azure, layout),
        partial(_registry, azure, layout),
        partial(_name, azure, layout),
        partial(_reservation, azure, layout),
        partial(_leftovers, azure, layout),
    ]
    with ThreadPoolExecutor(len(checks), thread_name_prefix="preflight") as pool:
        return [finding for found in pool.map(lambda check: check(), checks) for finding in found]


def _access(layout: AzureLayout) -> list[Finding]:
    """Refuse the private blocks that the storage account refuses only when the network is made already."""
    private = [
        text
        for text in layout.cluster.access_blocks
        if any(map(ipaddress.IPv4Network(text).overlaps, _PRIVATE))
    ]
    if not private:
        return []
    return [
        Finding(
            check="setting: access",
            ok=False,
            found=f"{', '.join(private)}: the public endpoints of the API and of the storage account admit "
            "no private addresses",
            remedy="use --access private, or your network's public addresses",
        )
    ]


def _registrations(azure: Azure, layout: AzureLayout) -> list[Finding]:
    """Check the registrations. A missing one is a warning: `up` registers; a feature may take 30 minutes."""
    driver, wanted = groups.RegistrationDriver(azure), groups.registrations(layout)
    missing = [one.properties.title for one in wanted if driver.find(one) is None]
    return [
        Finding(
            check="registrations",
            ok=not missing,
            found=f"not registered: {', '.join(missing)}" if missing else f"all {len(wanted)} are registered",
            needed="registered",
            remedy="`cloudrec up` registers them if the credentials permit it; if not, use "
            "`az provider register --namespace` and `az feature register`",
            blocks=False,
        )
    ]


def _types(azure: Azure, layout: AzureLayout) -> list[Finding]:
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
                remedy="choose other zones, another region or other instance types; for a restricted size, "
                "ask Azure's support to open the region (Usage + quotas in the portal)",
                blocks=not ways or all(each.restriction for each in sizes.values()),
            )
        )
    return found


def _version(azure: Azure, layout: AzureLayout) -> list[Finding]:
    driver = AzureClusterDriver(azure)
    offered = driver.offered_versions()
    wanted = layout.cluster.kubernetes_version
    minor = ".".join(wanted.split(".")[:2]) if wanted else ""
    return [
        Finding(
            check="Kubernetes version",
            ok=minor in offered if wanted else bool(offered),
            found=f"AKS offers {', '.join(offered) or 'none'} in standard support",
            needed=wanted or "",
            remedy="choose one of these (--set cluster.kubernetes_version=...), or leave it out",
            # A cluster that exists may have a version that AKS no longer offers for new ones.
            blocks=not driver.search(layout.title),
        )
    ]


def _storage_account(azure: Azure, layout: AzureLayout) -> list[Finding]:
    """Check the name of the storage account, which must be unique in all of Azure."""
    accounts = azure.storage.storage_accounts
    name, shared = layout.storage_account, layout.cluster.storage
    there = azure.get(accounts.get_properties, layout.storage_group, name)
    if shared is not None:
        return [
            Finding(
                check="storage account",
                ok=there is not None,
                found=f"{name} of cluster {shared.cluster} in {shared.region} "
                f"{'does not exist' if there is None else 'exists'}",
                remedy=f"`cloudrec up azure --cluster {shared.cluster}` makes it again",
            )
        ]
    if there is not None:
        return [_named("storage account", name, "exists", ok=is_ours(there.tags or {}, layout.title))]
    request = models.storage.StorageAccountCheckNameAvailabilityParameters(name=name)
    answer = azure.read(lambda: accounts.check_name_availability(request))
    return [_availability("storage account", name, answer, "storage_account")]


def _registry(azure: Azure, layout: AzureLayout) -> list[Finding]:
    registries = azure.containerregistry.registries
    name = layout.registry
    there = azure.get(registries.get, layout.group, name)
    if there is not None:
        return [_named("registry", name, "exists", ok=is_ours(there.tags or {}, layout.title))]
    request = models.containerregistry.RegistryNameCheckRequest(
        name=name, type="Microsoft.ContainerRegistry/registries"
    )
    answer = azure.read(lambda: registries.check_name_availability(request))
    return [_availability("registry", name, answer, "registry")]


def _availability(
    what: str,
    name: str,
    answer: models.storage.CheckNameAvailabilityResult | models.containerregistry.RegistryNameStatus,
    setting: str,
) -> Finding:
    return Finding(
        check=what,
        ok=bool(answer.name_available),
        found=f"{name} is free"
        if answer.name_available
        else f"{name}: {answer.message or plain(answer.reason)}",
        needed="a name that is unused in all of Azure",
        remedy=f"choose another name (--set cluster.settings.{setting}=...)",
    )


def _named(what: str, name: str, state: str, *, ok: bool) -> Finding:
    return Finding(
        check=what,
        ok=ok,
        found=f"{name} {state}" if ok else f"{name} {state}, and does not belong to this cluster",
        remedy="choose another --cluster",
    )


def _name(azure: Azure, layout: AzureLayout) -> list[Finding]:
    calls = azure.containerservice.managed_clusters
    row = azure.get(calls.get, layout.group, layout.name)
    if row is not None:
        return [_named("cluster name", layout.name, "exists", ok=is_ours(row.tags or {}, layout.title))]
    group = azure.get(azure.resources.resource_groups.get, group_name(layout.title))
    if group is not None and groups.is_free(group):
        there = place(group.location)
        return [
            Finding(
                check="resource group",
                ok=there == layout.region,
                found=f"{layout.group} was prepared in {there}",
                remedy=f"use --region {there}, or have the group prepared in {layout.region}",
            )
        ]
    if group is not None and not is_ours(group.tags or {}, layout.title):
        return [_named("cluster name", f"resource group {layout.group}", "exists", ok=False)]
    return [_named("cluster name", layout.name, "is free", ok=True)]


def _reservation(azure: Azure, layout: AzureLayout) -> list[Finding]:
    wanted = layout.settings.capacity_reservation_group
    if not wanted:
        return []
    client, group, name = azure.compute, ids.group_of(wanted), ids.names(wanted)[0]
    row = azure.get(client.capacity_reservation_groups.get, group, name)
    reserved = azure.rows(client.capacity_reservations.list_by_capacity_reservation_group, group, name)
    counts = {
        ("".join(each.zones or ()), each.sku.name or ""): each.sku.capacity or 0
        for each in reserved
        if each.sku.name in layout.instance_types
    }
    # A pool uses the reservations of its zone alone: with one missing, the nodes there would not be reserved.
    fits = {zone for (zone, _), count in counts.items() if count >= layout.cluster.nodes}
    found = ", ".join(
        f"{count} x {size} in {f'zone {zone}' if zone else 'no zone'}"
        for (zone, size), count in sorted(counts.items())
    )
    zones = [zone for zone in layout.gpu_zones if zone]
    where = f"zone {' and '.join(zones)}" if zones else "no zone"
    return [
        Finding(
            check="capacity reservation group",
            ok=row is not None and set(layout.gpu_zones) <= fits,
            found=(found or "none of these sizes") if row is not None else f"{wanted} does not exist",
            needed=f"{layout.cluster.nodes} x {' or '.join(layout.instance_types)} in {where}",
            remedy=f"use the zones that have them (--zones {','.join(sorted(fits))})"
            if any(fits)
            else "reserve more in it, or choose a size that it has (--set cluster.instance_types=...)",
        )
    ]


def _leftovers(azure: Azure, layout: AzureLayout) -> list[Finding]:
    found = leftovers.drivers(azure)[LEFTOVERS].search(layout.title)
    return [leftover_finding(found, "azure", layout.title)]

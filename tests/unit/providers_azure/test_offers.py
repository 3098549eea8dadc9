"""Known sizes, their description by a region, and their prices."""

from __future__ import annotations

from typing import Any

import pytest
from azure.mgmt.compute import models

from cloudrec.errors import SpecError
from cloudrec.providers.azure import offers, prices
from cloudrec.providers.azure.offers import KNOWN, Sku


def row(
    name: str,
    *,
    zones: list[str] | None = None,
    closed: list[str] | None = None,
    reason: str = "",
    **capabilities: str,
) -> Any:
    restrictions = []
    if closed:
        restrictions.append(
            {
                "type": "Zone",
                "restrictionInfo": {"zones": closed},
                "reasonCode": "NotAvailableForSubscription",
            }
        )
    if reason:
        restrictions.append({"type": "Location", "values": ["eastus"], "reasonCode": reason})
    return models.ResourceSku(
        {
            "name": name,
            "resourceType": "virtualMachines",
            "family": "someFamily",
            "locationInfo": [{"location": "eastus", "zones": zones or []}],
            "restrictions": restrictions,
            "capabilities": [{"name": key, "value": value} for key, value in capabilities.items()],
        }
    )


@pytest.mark.parametrize("given", ["ND96asr_v4", "standard_nd96ASR_v4", "Standard_ND96asr_v4"])
def test_a_size_is_known_in_every_spelling(given: str) -> None:
    assert offers.spelled(given) == "Standard_ND96asr_v4"


@pytest.mark.parametrize(
    ("of_usages", "of_skus"),
    [
        ("Standard NDASv4_A100 Family", "standardNDASv4_A100Family"),
        ("standard NDAMSv4_A100Family", "standardNDAMSv4_A100Family"),
        ("Standard NCASv3_T4 Family", "StandardNCASv3_T4Family"),
        ("Standard NDSH100v5 Family vCPUs", "standardNDSH100v5Family"),
    ],
)
def test_both_spellings_of_a_family_are_equal(of_usages: str, of_skus: str) -> None:
    assert offers.family_key(of_usages) == offers.family_key(of_skus)


def test_zones_restricted_for_the_subscription_are_not_tried() -> None:
    found = offers.sku_of("Standard_ND96asr_v4", row("x", zones=["3", "1", "2"], closed=["2"]))
    assert found == Sku(
        hardware=KNOWN["Standard_ND96asr_v4"], zones=("1", "3"), restriction="", spot=True, zonal=True
    )


def test_a_size_restricted_in_every_zone_or_in_the_region_is_unavailable() -> None:
    everywhere = offers.sku_of("Standard_ND96asr_v4", row("x", zones=["1"], closed=["1"]))
    assert (everywhere.zones, everywhere.restriction) == ((), "NotAvailableForSubscription")
    assert offers.sku_of("Standard_ND96asr_v4", row("x", reason="QuotaId")).restriction == "QuotaId"


def test_a_size_missing_from_the_table_is_read_from_the_region() -> None:
    name = "Standard_ND96isr_H200_v9"
    told = row(name, GPUs="8", vCPUs="96", MemoryGB="1850", RdmaEnabled="True", LowPriorityCapable="False")
    found = offers.sku_of(name, told)
    assert (found.hardware.gpu, found.hardware.gpus, found.hardware.gpu_memory_gib) == ("H200", 8, 141)
    assert (found.hardware.infiniband, found.hardware.vcpus, found.spot) == (8, 96, False)
    assert (found.hardware.profile, found.hardware.architecture) == ("", "x86_64")


def test_a_size_without_an_nvidia_gpu_is_refused() -> None:
    amd = "Standard_ND96isr_MI300X_v5"
    sizes = {name: offers.sku_of(name, row(name, GPUs="8")) for name in (amd, "Standard_D4s_v5")}
    for name in sizes:
        with pytest.raises(SpecError, match="no NVIDIA GPU"):
            offers.hardware_of([name], sizes, "eastus")


@pytest.mark.parametrize(
    ("name", "reason", "instead"),
    [
        ("Standard_ND128isr_NDR_GB200_v6", "is arm64; the trainer's images are for x86_64", "H200_v5"),
        ("Standard_ND96isr_MI300X_v5", "has no NVIDIA GPU: the trainer's images need CUDA", "H200_v5"),
        ("Standard_NV6ads_A10_v5", "has a sixth of a GPU", "Standard_NV36ads_A10_v5"),
    ],
)
def test_a_refused_size_has_a_reason_and_another_choice(name: str, reason: str, instead: str) -> None:
    with pytest.raises(SpecError, match=f"VM size '{name}' {reason}") as refused:
        offers.hardware_of([name], {}, "eastus")
    assert instead in str(refused.value.remedy)


def test_a_size_with_arm_cpus_that_only_the_region_describes_is_refused() -> None:
    name = "Standard_ND64_GB200_v9"
    sizes = {name: offers.sku_of(name, row(name, GPUs="4", CpuArchitectureType="Arm64"))}
    with pytest.raises(SpecError, match="is arm64; the trainer's images are for x86_64"):
        offers.hardware_of([name], sizes, "eastus")


def test_an_unknown_size_is_refused_with_the_closest_match() -> None:
    with pytest.raises(SpecError, match="there is no VM size 'Standard_ND96asr_v5' in eastus") as caught:
        offers.hardware_of(["Standard_ND96asr_v5"], {}, "eastus")
    assert "Standard_ND96asr_v4" in str(caught.value.remedy)


def test_every_known_size_has_a_dated_price_in_some_region() -> None:
    shipped = prices.shipped()
    for name in KNOWN:
        rows = [each for (_, of, sold), each in shipped.rows.items() if (of, sold) == (name, "on-demand")]
        assert rows
        assert all(each.as_of >= "2026" for each in rows)
    table = shipped.within("eastus")
    assert all(table.service(name) for name in ("aks-standard", "nat-gateway", "acr-standard"))

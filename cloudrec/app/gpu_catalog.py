"""The GPU machines of all clouds, from the tables that ship with the code: no cloud is asked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec import providers
from cloudrec.errors import UsageError
from cloudrec.providers.base.offers import ON_DEMAND, SPOT
from cloudrec.providers.base.prices import Prices, saved_at, table_of
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.providers.base.offers import InstanceType
    from cloudrec.providers.base.prices import Price


@dataclass(frozen=True, kw_only=True)
class GpuMachine:
    """A machine type with GPUs, in the region where it costs least on demand.

    Attributes:
        provider: the cloud.
        instance_type: its name.
        gpu: the GPU's model.
        gpus: its number of GPUs.
        gpu_memory_gib: memory of each GPU, in GiB.
        vcpus: virtual cores.
        memory_gib: main memory, in GiB.
        fabric: the network between GPUs of different machines; tcp for none.
        network_gbit_s: bandwidth between two machines, in Gbit/s.
        region: the cheapest region of the table; None if the table has no price.
        hourly_usd: USD an hour on demand there; None if unknown.
        spot_usd: USD an hour as spot there; None if unknown.
        as_of: the date of the price.
        source: its source.
    """

    provider: str
    instance_type: str
    gpu: str
    gpus: int
    gpu_memory_gib: int
    vcpus: int
    memory_gib: float
    fabric: str
    network_gbit_s: float
    region: str | None = None
    hourly_usd: float | None = None
    spot_usd: float | None = None
    as_of: str | None = None
    source: str | None = None


def gpu_machines(app: AppContext, gpu: str, provider: str | None = None) -> list[GpuMachine]:
    """Return the machine types with a GPU model, the ones with the most GPUs first, then the cheapest.

    Prices are those that ship with the code, and newer ones that a command has fetched.

    Args:
        app: the context of the use case.
        gpu: the model, such as H100, in any case.
        provider: only this cloud; None for all.

    Raises:
        UsageError: no cloud has this model.
    """
    known = machines_with(gpu, provider)
    found = []
    for name, chosen in known.items():
        prices = known_prices(app, name) if chosen else Prices(rows={})
        found += [_machine(name, each, prices) for each in chosen]
    return sorted(found, key=lambda each: (-each.gpus, each.hourly_usd is None, each.hourly_usd or 0.0))


def machines_with(gpu: str | None, provider: str | None = None) -> dict[str, list[InstanceType]]:
    """Return the machine types with a GPU model, by the clouds; all types if no model is named.

    Args:
        gpu: the model, in any case; None for all.
        provider: only this cloud; None for all.

    Raises:
        SpecError: there is no such provider.
        UsageError: no cloud has this model, or cloudrec refuses each machine type with it.
    """
    names = providers.names() if provider is None else (provider,)
    known = {name: list(providers.hardware(name).values()) for name in names}
    if gpu is None:
        return known
    models = sorted({each.gpu for table in known.values() for each in table})
    if gpu.lower() not in {model.lower() for model in models}:
        _explain(gpu, names)
        raise UsageError(
            f"no machine type with GPU {gpu!r} is known", remedy=did_you_mean(gpu.upper(), models)
        )
    return {
        name: [each for each in table if each.gpu.lower() == gpu.lower()] for name, table in known.items()
    }


def _explain(gpu: str, names: Sequence[str]) -> None:
    """Raise UsageError if there are machine types with the model, all of which cloudrec refuses."""
    for provider in names:
        for name, row in providers.refused(provider).items():
            if row.gpu.lower() == gpu.lower():
                raise UsageError(
                    f"no machine type with GPU {row.gpu} can be used: {name} of {provider} {row.refused}",
                    remedy=f"choose {' or '.join(row.instead)} instead",
                )


def known_prices(app: AppContext, provider: str) -> Prices:
    """Return the prices that ship with the code, and newer ones that a command has fetched."""
    table = table_of(f"{providers.__name__}.{provider}")
    for path in sorted((app.home.root / "prices").glob(f"{provider}-*.csv")):
        table = table.renewed(saved_at(path))
    return table


def _machine(provider: str, hardware: InstanceType, prices: Prices) -> GpuMachine:
    name = hardware.instance_type
    best = min(_of(prices, name, ON_DEMAND), key=lambda price: price.usd, default=None)
    spot = [price.usd for price in _of(prices, name, SPOT) if best and is_in(price.region, best.region)]
    return GpuMachine(
        provider=provider,
        instance_type=name,
        gpu=hardware.gpu,
        gpus=hardware.gpus,
        gpu_memory_gib=hardware.gpu_memory_gib,
        vcpus=hardware.vcpus,
        memory_gib=hardware.memory_gib,
        fabric=hardware.fabric,
        network_gbit_s=hardware.network_gbit_s,
        region=best.region if best else None,
        hourly_usd=best.hourly_usd if best else None,
        spot_usd=min(spot, default=None),
        as_of=best.as_of if best else None,
        source=best.source if best else None,
    )


def is_in(place: str, region: str) -> bool:
    """Return whether a place is the region or a zone of it, such as us-east-1a; eastus2 is not in eastus."""
    return re.fullmatch(rf"{re.escape(region)}(-?[a-z])?", place) is not None


def _of(prices: Prices, name: str, capacity: str) -> Sequence[Price]:
    return [row for (_, of, sold), row in prices.rows.items() if (of, sold) == (name, capacity)]

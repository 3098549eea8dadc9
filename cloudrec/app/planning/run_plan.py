"""What the spec's run would need and cost on every machine of every cloud. No cloud is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cloudrec import providers
from cloudrec.app.gpu_catalog import is_in, known_prices, machines_with
from cloudrec.app.planning.calibration import kept_calibration
from cloudrec.app.planning.planned_inputs import RunTables, layer_sizes, planned_inputs, tables_of
from cloudrec.app.planning.traffic import traffic_to
from cloudrec.app.run.measured_links import kept_links
from cloudrec.app.run.trainer_config import resolved_settings
from cloudrec.data.format import manifest
from cloudrec.errors import DataError, UsageError
from cloudrec.launchers.base.results_store import open_place
from cloudrec.planning.fit.cpu import cpu_memory, cpu_step
from cloudrec.planning.fit.layers import dense_work, is_known
from cloudrec.planning.fit.offers import MachineOffer, PlannedOffer, planned_offers
from cloudrec.planning.fit.work import TrainingWork
from cloudrec.providers.base.offers import ON_DEMAND, SPOT, X86
from cloudrec_contract.settings import underscored_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.app.planning.traffic import Traffic
    from cloudrec.planning.fit.cpu import CpuStep
    from cloudrec.planning.fit.memory import RankMemory
    from cloudrec.planning.fit.work import Placement
    from cloudrec.providers.base.offers import InstanceType
    from cloudrec.providers.base.prices import Prices
    from cloudrec.spec.load import Loaded

LOCAL = "local"
_FEATURES = 26  # of a run whose dataset is not named: Criteo's
_PRECISIONS = ("fp32", "tf32", "bf16")


@dataclass(frozen=True, kw_only=True)
class PlanWish:
    """What to plan for.

    Attributes:
        gpu: only machines with this GPU model; None for all.
        provider: only this cloud; None for all.
        regions: only these regions; if empty, the cheapest one of each machine.
        capacities: the capacity types, on-demand and spot.
        most_nodes: the most machines.
        samples: samples of an epoch, in place of the dataset's; None for the dataset's.
        ids: ids of a sample over all tables; None for one a table.
    """

    gpu: str | None = None
    provider: str | None = None
    regions: tuple[str, ...] = ()
    capacities: tuple[str, ...] = (ON_DEMAND,)
    most_nodes: int = 8
    samples: int | None = None
    ids: float | None = None


@dataclass(frozen=True, kw_only=True)
class OwnOffer:
    """What the run would be on this machine.

    Attributes:
        step: the time of a step.
        memory: of each rank.
        cores: of this machine.
        as_of: when it was measured.
        hours: of the whole run; None if the samples are unknown.
        refusal: why the run cannot be done; empty if it can.
    """

    step: CpuStep
    memory: RankMemory
    cores: int
    as_of: str
    hours: float | None
    refusal: str = ""


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The work and every way to do it.

    Attributes:
        work: what is to be trained.
        offers: each machine and number of nodes, also those on which it cannot be done.
        tables_from: where the sizes of the tables are from.
        assumes: what is not known and was assumed; None for nothing.
        here: what it would be on this machine, if that was measured.
    """

    work: TrainingWork
    offers: Sequence[PlannedOffer]
    tables_from: str
    assumes: str | None = None
    here: Sequence[OwnOffer] = ()


def run_plan(app: AppContext, loaded: Loaded, flags: Sequence[str], wish: PlanWish) -> RunPlan:
    """Return what the run of a spec needs and costs on each machine.

    Args:
        app: the context of the use case.
        loaded: the spec.
        flags: more flags for the trainer.
        wish: what to plan for.

    Raises:
        SpecError: the trainer refuses its configuration.
        DataError: the dataset cannot be read.
        UsageError: neither a dataset nor sizes of tables are given, or no machine has the GPU.
    """
    settings = resolved_settings(underscored_keys(loaded.spec.trainer), flags).values
    work, tables_from = _work(settings, wish)
    here = _own_offers(app, work, wish)
    uri = str(settings.get("dataset_path") or "")
    machines = [] if wish.provider == LOCAL else list(_machines(app, wish, uri))
    if wish.provider == LOCAL and not here:
        raise UsageError("this machine was not measured", remedy="run `cloudrec plan --calibrate`")
    if not machines and not here:
        raise UsageError(
            "no machine type fits these options", remedy="leave out --gpus, --provider or --regions"
        )
    offers = list(planned_offers(work, machines, most_nodes=wish.most_nodes))
    model, assumes = str(settings["model"]), None
    if not is_known(model):
        assumes = f"the layers of {model} are not known, so they are counted as dlrm's"
    return RunPlan(work=work, offers=offers, tables_from=tables_from, assumes=assumes, here=here)


def _own_offers(app: AppContext, work: TrainingWork, wish: PlanWish) -> list[OwnOffer]:
    if wish.gpu is not None or wish.provider not in {None, LOCAL} or wish.regions:
        return []
    try:
        known = kept_calibration(app)
    except UsageError as error:
        if wish.provider == LOCAL:
            raise
        app.report(f"this machine is left out: {error.message}; {error.remedy}")
        return []
    if known is None:
        return []
    found = []
    for ranks, rates in known.rates.items():
        step = cpu_step(work, rates)
        memory = cpu_memory(
            work,
            ranks=ranks,
            baseline_bytes=known.baseline_bytes[ranks],
            memory_bytes=known.memory_bytes,
        )
        refusal = ""
        if work.global_batch is not None and work.global_batch % ranks:
            refusal = f"a step of {work.global_batch:,} samples cannot be divided among {ranks} ranks"
        elif not memory.fits:
            refusal = f"each rank needs {memory.need:.1f} GiB and has {memory.have:.1f} GiB"
        samples = work.samples_in_all
        found.append(
            OwnOffer(
                step=step,
                memory=memory,
                cores=known.cores,
                as_of=known.as_of,
                hours=None if samples is None else samples / step.samples_per_s / 3600.0,
                refusal=refusal,
            )
        )
    return found


def _work(settings: Mapping[str, Any], wish: PlanWish) -> tuple[TrainingWork, str]:
    """Return the work by the trainer's settings and the dataset."""
    uri = str(settings.get("dataset_path") or "")
    dim = int(settings["embedding_dim"])
    given = settings.get("num_embeddings_per_feature") or settings.get("num_embeddings")
    if uri:
        tables = tables_of(_manifest(uri), f"{uri}/{manifest.NAME}")
    elif isinstance(given, list):
        tables = RunTables(rows=[int(each) for each in given], source="num_embeddings_per_feature")
    elif given:
        source = f"num_embeddings, for each of {_FEATURES} tables"
        tables = RunTables(rows=[int(given)] * _FEATURES, source=source)
    else:
        raise UsageError(
            "the sizes of the embedding tables are not known",
            remedy="name the dataset with --dataset URI, or give --samples and `-- --num_embeddings N`",
        )
    model = str(settings["model"])
    inputs = planned_inputs(tables, model, dim)
    ids = wish.ids if wish.ids is not None else tables.ids
    precision = str(settings.get("precision", "fp32"))
    work = TrainingWork(
        table_rows=tables.rows,
        table_dims=inputs.dims,
        vector_dims=inputs.vectors,
        exchanged=inputs.exchanged,
        dim=dim,
        ids=ids if ids is not None else float(len(inputs.vectors)),
        dense=dense_work(model, layer_sizes(settings, tables, inputs)),
        batch=None if settings.get("global_batch_size") else int(settings["batch_size"]),
        global_batch=settings.get("global_batch_size") or None,
        precision=precision if precision in _PRECISIONS else "fp32",
        weights=str(settings.get("embedding_weight_precision", "fp32")),
        table_optimizer=str(settings["table_optimizer"]),
        dense_optimizer=str(settings["dense_optimizer"]),
        placement=_placement(settings),
        may_use_host=any(str(each).startswith("fused_uvm") for each in settings["compute_kernels"]),
        samples=wish.samples if wish.samples is not None else tables.samples,
        epochs=int(settings["num_epochs"]),
        scored=tables.scored,
        eval_interval=int(settings["eval_interval"]),
    )
    return work, tables.source


def _placement(settings: Mapping[str, Any]) -> Placement:
    """Return how tables may be placed by the trainer's settings for its planner."""
    if settings["data_parallel"]:
        return "replicated"
    kinds = set(settings["sharding_types"])
    if not kinds & {"row_wise", "table_row_wise"}:
        return "whole"
    return "any" if "table_wise" in kinds else "divided"


def _manifest(uri: str) -> dict[str, Any]:
    place = open_place(uri)
    text = place.read(manifest.NAME)
    if text is None:
        raise DataError(
            f"there is no {manifest.NAME} at {uri}",
            remedy="name a dataset that `cloudrec data prepare` has made",
        )
    return manifest.parse(text, f"{uri}/{manifest.NAME}")


def _machines(app: AppContext, wish: PlanWish, uri: str) -> Iterator[MachineOffer]:
    for name, chosen in machines_with(wish.gpu, wish.provider).items():
        if not chosen:
            continue
        prices, traffic = known_prices(app, name), traffic_to(app, uri, name)
        for hardware in chosen:
            if hardware.architecture == X86:
                inside, across = (
                    kept_links(app, name, hardware.instance_type, across=across) for across in (False, True)
                )
                for offer in _offered(name, hardware, prices, wish, traffic):
                    yield replace(offer, inside=inside, across=across)


def _offered(
    provider: str, hardware: InstanceType, prices: Prices, wish: PlanWish, traffic: Traffic
) -> Iterator[MachineOffer]:
    """Yield a machine in the wanted regions, or in its cheapest one, for each capacity type."""
    facts = providers.facts(provider)
    control_plane, bucket = (facts.control_plane, facts.bucket) if facts is not None else ("", "")
    for capacity in wish.capacities:
        found = [
            price
            for (_, name, sold), price in prices.rows.items()
            if (name, sold) == (hardware.instance_type, capacity) and price.hourly_usd is not None
        ]
        for region in wish.regions or ("",):
            here = [price for price in found if not region or is_in(price.region, region)]
            best = min(here, key=lambda price: price.usd, default=None)
            if best is None and (region or capacity == SPOT):
                continue  # the table does not show whether the region has it
            place = region or (best.region if best else "")
            control, stored = (prices.within(place).price(name) for name in (control_plane, bucket))
            yield MachineOffer(
                provider=provider,
                region=place,
                instance_type=hardware.instance_type,
                capacity=capacity,
                gpu=hardware.gpu,
                gpus=hardware.gpus,
                gpu_gib=hardware.gpu_memory_gib,
                memory_gib=hardware.memory_gib,
                nvlink_gb_s=hardware.nvlink_gb_s,
                network_gbit_s=hardware.network_gbit_s,
                joins_nodes=bool(hardware.profile),
                hourly_usd=best.hourly_usd if best else None,
                price=best.label if best else "",
                control_usd=control.hourly_usd if control else None,
                control_price=control.label if control else "",
                storage_usd=stored.hourly_usd if stored else None,
                storage_price=stored.label if stored else "",
                traffic_usd=traffic.usd,
                traffic_price=traffic.basis,
            )

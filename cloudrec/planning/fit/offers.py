"""Every machine and number of nodes for a run: does it fit, how fast is it, and what does it cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cloudrec.planning.fit.gpus import gpu_rates
from cloudrec.planning.fit.memory import GIB, rank_memory
from cloudrec.planning.fit.step import Links, step_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cloudrec.planning.fit.memory import RankMemory
    from cloudrec.planning.fit.step import MeasuredLinks, StepTime
    from cloudrec.planning.fit.work import TrainingWork

SPOT = "spot"
# Published traces of GPU machines have 0.55 to 0.61 ends a node and hour; the middle.
_ENDS_PER_HOUR = 0.58
_LOST_H = 330.0 / 3600.0  # a restart and the work since the last checkpoint
_START_H = 10.0 / 60.0  # from the first node to the first step
Order = Literal["usd", "hours", "samples"]


@dataclass(frozen=True, kw_only=True)
class MachineOffer:
    """One machine type in one region, as one capacity type.

    Attributes:
        provider: the cloud.
        region: the region.
        instance_type: the machine type.
        capacity: on-demand or spot.
        gpu: the GPU's model.
        gpus: GPUs of a machine.
        gpu_gib: memory of a GPU, in GiB.
        nvlink_gb_s: NVLink between two of its GPUs, both directions; 0 without.
        network_gbit_s: bandwidth between two machines.
        joins_nodes: whether several of them train together over their fabric.
        hourly_usd: USD an hour; None if unknown.
        price: date and source of the price; empty if unknown.
        control_usd: USD an hour of a cluster's control plane; None if unknown.
        control_price: date and source of that price; empty if unknown.
        storage_usd: USD an hour of a GiB in the cluster's bucket; None if unknown.
        storage_price: date and source of that price; empty if unknown.
        traffic_usd: USD for each GiB of the dataset, to copy it to the cluster's bucket; None if unknown.
        traffic_price: where that price is from; empty if unknown.
        memory_gib: main memory of a machine, in GiB; 0 if unknown.
        inside: what was measured between the GPUs of one such machine; None if nothing was.
        across: what was measured between those of several; None if nothing was.
    """

    provider: str
    region: str
    instance_type: str
    capacity: str
    gpu: str
    gpus: int
    gpu_gib: int
    nvlink_gb_s: float
    network_gbit_s: float
    joins_nodes: bool
    hourly_usd: float | None
    price: str = ""
    control_usd: float | None = None
    control_price: str = ""
    storage_usd: float | None = None
    storage_price: str = ""
    traffic_usd: float | None = None
    traffic_price: str = ""
    memory_gib: float = 0.0
    inside: MeasuredLinks | None = None
    across: MeasuredLinks | None = None

    @property
    def links(self) -> Links:
        """Speeds for each GPU. Without NVLink, GPUs of a machine use PCIe, of about 20 GB/s."""
        return Links(
            gpus_a_node=self.gpus,
            inside_gb_s=self.nvlink_gb_s / 2 or 20.0,
            across_gb_s=self.network_gbit_s / 8 / self.gpus,
            inside=self.inside,
            across=self.across,
        )


@dataclass(frozen=True, kw_only=True)
class PlannedOffer:
    """What a run would be on so many machines.

    Attributes:
        machine: the machine.
        nodes: the number of machines.
        memory: memory of each rank.
        step: the time of a step; None if the GPU's or a link's rates are unknown.
        hours_by_part: hours of the start, of training, evaluations and expected interruptions; empty if
            unknown.
        stored_gib: what the run has in the bucket; None if unknown.
        dataset_gib: the dataset's part of it; None if unknown.
        fits: whether the run can be done on it; None if that is not known.
        refusal: why it cannot, or why it is not known; empty if it can.
    """

    machine: MachineOffer
    nodes: int
    memory: RankMemory
    step: StepTime | None
    hours_by_part: Mapping[str, float]
    stored_gib: float | None
    dataset_gib: float | None
    fits: bool | None
    refusal: str

    @property
    def hours(self) -> float | None:
        """Hours of the whole run; None if unknown."""
        return sum(self.hours_by_part.values()) if self.hours_by_part else None

    @property
    def usd(self) -> float | None:
        """The sum of the parts that are known, in USD; None if that of the nodes is unknown."""
        parts = self.usd_by_part
        return None if parts["nodes"] is None else sum(part or 0.0 for part in parts.values())

    @property
    def hourly_usd(self) -> float | None:
        """USD an hour of all nodes; None if unknown."""
        one = self.machine.hourly_usd
        return None if one is None else one * self.nodes

    @property
    def usd_by_part(self) -> dict[str, float | None]:
        """USD by part for these hours; None where a price or an amount is unknown."""

        def cost(hourly: float | None) -> float | None:
            return None if hourly is None or self.hours is None else hourly * self.hours

        machine, stored, moved = self.machine, None, None
        if machine.storage_usd is not None and self.stored_gib is not None:
            stored = machine.storage_usd * self.stored_gib
        if machine.traffic_usd is not None and self.dataset_gib is not None:
            moved = machine.traffic_usd * self.dataset_gib
        return {
            "nodes": cost(self.hourly_usd),
            "control_plane": cost(machine.control_usd),
            "storage": cost(stored),
            "egress": moved,
        }

    @property
    def measured_links(self) -> MeasuredLinks | None:
        """The measurement that the exchange between these GPUs is from; None if it is from data sheets."""
        if self.step is None or self.step.ranks == 1:
            return None
        return self.machine.links.measured(self.nodes)

    @property
    def samples_per_s(self) -> float | None:
        """Samples a second while it trains; None if unknown."""
        return self.step.samples_per_s if self.step else None


def planned_offers(
    work: TrainingWork, machines: Iterable[MachineOffer], *, most_nodes: int
) -> Iterator[PlannedOffer]:
    """Yield each machine with 1, 2, 4 ... nodes; several only of machines that train together."""
    for machine in machines:
        nodes = 1
        while nodes <= (most_nodes if machine.joins_nodes else 1):
            yield _planned(work, machine, nodes)
            nodes *= 2


def ranked(offers: Iterable[PlannedOffer], order: Order) -> list[PlannedOffer]:
    """Return the offers that can do the run, the best first; those without the figure are last."""

    def figure(offer: PlannedOffer) -> tuple[bool, float, float, float]:
        speed = -(offer.samples_per_s or 0.0)
        value = {"usd": offer.usd, "hours": offer.hours, "samples": speed}[order]
        if value is None and order == "usd" and offer.hourly_usd is not None and offer.samples_per_s:
            value = offer.hourly_usd / offer.samples_per_s  # the samples are unknown: USD for each
        # Where the input limits several machines, they are equally fast: the cheaper one is better.
        cost = math.inf if offer.usd is None else offer.usd
        return (value is None, float(f"{value or 0.0:.9g}"), cost, speed)

    return sorted((each for each in offers if not each.refusal), key=figure)


def best_of_each(offers: Iterable[PlannedOffer]) -> list[PlannedOffer]:
    """Return the first offer of each machine type and capacity type, in the given order."""
    found: dict[tuple[str, str, str], PlannedOffer] = {}
    for each in offers:
        key = (each.machine.provider, each.machine.instance_type, each.machine.capacity)
        found.setdefault(key, each)
    return list(found.values())


def goodput(capacity: str, nodes: int) -> float:
    """Return the expected share of useful time: spot nodes are taken back, and each end costs a restart."""
    if capacity != SPOT:
        return 1.0
    return 1.0 / (1.0 + _ENDS_PER_HOUR * nodes * _LOST_H)


def _planned(work: TrainingWork, machine: MachineOffer, nodes: int) -> PlannedOffer:
    ranks = nodes * machine.gpus
    memory = rank_memory(work, ranks=ranks, gpu_gib=machine.gpu_gib, node=machine.gpus)
    rates = gpu_rates(machine.gpu, machine.gpu_gib)
    step = step_time(work, rates, machine.links, nodes=nodes) if rates else None
    hours = _hours(work, step, goodput(machine.capacity, nodes)) if step is not None else {}
    is_divisible = work.global_batch is None or work.global_batch % ranks == 0
    return PlannedOffer(
        machine=machine,
        nodes=nodes,
        memory=memory,
        step=step,
        hours_by_part=hours,
        stored_gib=None if work.stored_bytes is None else work.stored_bytes / GIB,
        dataset_gib=None if work.samples is None else work.samples * work.sample_bytes / GIB,
        fits=memory.fits if is_divisible else False,
        refusal=_refusal(work, memory, ranks),
    )


def _hours(work: TrainingWork, step: StepTime, useful: float) -> dict[str, float]:
    """Return the hours of the whole run by part; none if the samples are unknown.

    Args:
        work: what is trained.
        step: the time of a step.
        useful: the expected share of useful time.
    """
    if work.samples_in_all is None:
        return {}
    samples = step.batch * step.ranks
    training = work.samples_in_all / step.samples_per_s / 3600.0
    evaluation = work.scored_in_all(samples) / samples * step.scoring_s / 3600.0
    return {
        "start": _START_H,
        "training": training,
        "evaluation": evaluation,
        "interruptions": (training + evaluation) * (1.0 / useful - 1.0),
    }


def _refusal(work: TrainingWork, memory: RankMemory, ranks: int) -> str:
    if work.global_batch is not None and work.global_batch % ranks:
        return f"a step of {work.global_batch:,} samples cannot be divided among {ranks} GPUs"
    if memory.fits:
        return ""
    parts = {
        "tables": memory.tables,
        "activations": memory.activations,
        "exchange": memory.exchange,
        "dense part": memory.dense,
    }
    largest = max(parts, key=lambda name: parts[name])
    needs = (
        f"each GPU needs {memory.need:.1f} GiB ({largest} {parts[largest]:.1f} GiB) and has "
        f"{memory.have:.0f} GiB"
    )
    if memory.fits is False:
        return needs
    if work.may_use_host:
        return f"{needs}; rows may be in the host's memory, which is not planned"
    return f"{needs}: the tables fit, but a step with this batch may not"

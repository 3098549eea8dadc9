"""The time of a training step on GPUs, by part: an estimate from a roofline, not a measurement.

Each part is the larger of what its operations and its bytes need, at a share of the GPU's peak that published
runs reach. What overlaps is counted once: reading and sending the next batch runs beside the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudrec.planning.fit.gpus import GpuRates
    from cloudrec.planning.fit.work import TrainingWork

# Shares of the peak that published runs reach: docs/plan.md compares them.
_MATMUL = 0.45
_MEMORY = 0.6
_NETWORK = 0.7
# Times that an activation is written or read: forward, backward, activation functions.
_PASSES = 8
_PASSES_OF_A_STEP = 3  # forward, and backward for inputs and weights
_ROW_PASSES = 3  # of a table's row: read, and read and written by the optimizer
# The host's work for a step, whatever the batch, as measured on 2026-11-26 (benchmarks/results/gpu).
_LAUNCH_S = 0.009
_LAUNCH_ALONE_S = 0.005  # of one GPU, which exchanges nothing and replays CUDA graphs: an estimate
# Bytes a second that a rank's reader threads copy to pinned memory. One thread alone was measured at 18 to
# 20 GB/s on 2026-11-26 (benchmarks/results); the ranks of a machine share its memory.
_READ_BYTES_S = 10e9
# The true throughput lies between these multiples of the estimate, by the published runs (docs/plan.md).
LOW, HIGH = 0.4, 1.5


@dataclass(frozen=True, kw_only=True)
class MeasuredLinks:
    """What a smoke job measured on such machines, in GB/s for each GPU (cloudrec.agent.checks.smoke_report).

    Attributes:
        all_to_all_gb_s: what a GPU sends to those of other nodes, or on one node to all others.
        all_reduce_gb_s: the bus bandwidth: 2 (n - 1) / n of the bytes that each of n GPUs gives, a second.
        nodes: the nodes of the job.
        cluster: the cluster's name.
        as_of: the date, as YYYY-MM-DD.
    """

    all_to_all_gb_s: float
    all_reduce_gb_s: float
    nodes: int
    cluster: str
    as_of: str


@dataclass(frozen=True, kw_only=True)
class Links:
    """How fast GPUs exchange data, in GB/s for each GPU.

    Attributes:
        gpus_a_node: GPUs of a node.
        inside_gb_s: between GPUs of a node; 0 if that is unknown.
        across_gb_s: between nodes, each GPU's share; 0 if that is unknown.
        inside: what was measured on one node; None if nothing was.
        across: what was measured on several nodes; None if nothing was.
    """

    gpus_a_node: int
    inside_gb_s: float
    across_gb_s: float
    inside: MeasuredLinks | None = None
    across: MeasuredLinks | None = None

    def measured(self, nodes: int) -> MeasuredLinks | None:
        """Return what was measured on one node, or on several; None if nothing was."""
        return self.across if nodes > 1 else self.inside

    @property
    def within_bytes_s(self) -> float:
        """Bytes a second that a GPU sends to the others of its node; 0 if unknown."""
        if self.inside is not None:
            return self.inside.all_to_all_gb_s * 1e9
        return self.inside_gb_s * 1e9 * _NETWORK

    @property
    def across_bytes_s(self) -> float:
        """Bytes a second that a GPU sends to those of other nodes; 0 if unknown."""
        if self.across is not None:
            return self.across.all_to_all_gb_s * 1e9
        return self.across_gb_s * 1e9 * _NETWORK


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of one step, by part.

    Attributes:
        batch: samples of one rank.
        ranks: the number of ranks.
        dense: the dense part, forward and backward.
        tables: reading and updating rows.
        exchange: pooled embeddings and their gradients between ranks.
        gradients: the dense part's gradients between ranks.
        host: the host's own work; runs beside the GPU.
        input: reading a batch into pinned memory; runs beside the step.
    """

    batch: int
    ranks: int
    dense: float
    tables: float
    exchange: float
    gradients: float
    host: float
    input: float

    @property
    def on_gpu(self) -> float:
        """Seconds for which the GPU and its links work. Gradients are exchanged beside the backward pass."""
        return self.dense + self.tables + self.exchange + max(self.gradients - self.dense / 2, 0.0)

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return max(self.on_gpu, self.host, self.input)

    @property
    def scoring_s(self) -> float:
        """Seconds to score a batch: a third of the work of a step, and the exchange in one direction."""
        on_gpu = (self.dense + self.tables) / _PASSES_OF_A_STEP + self.exchange / 2
        return max(on_gpu, self.host / _PASSES_OF_A_STEP, self.input)

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by part."""
        return {
            "dense": self.dense,
            "tables": self.tables,
            "exchange": self.exchange,
            "gradients": self.gradients,
            "host": self.host,
            "input": self.input,
        }

    @property
    def samples_per_s(self) -> float:
        """Samples a second over all ranks."""
        return self.batch * self.ranks / self.seconds

    @property
    def limited_by(self) -> str:
        """The part that takes longest: input, host, dense, tables, exchange or gradients."""
        if self.input >= max(self.on_gpu, self.host):
            return "input"
        if self.host >= self.on_gpu:
            return "host"
        parts = {
            "dense": self.dense,
            "tables": self.tables,
            "exchange": self.exchange,
            "gradients": max(self.gradients - self.dense / 2, 0.0),
        }
        return max(parts, key=lambda name: parts[name])


def step_time(work: TrainingWork, gpu: GpuRates, links: Links, *, nodes: int) -> StepTime | None:
    """Return the time of a step on so many nodes; None if a link that it needs is of unknown speed."""
    ranks = nodes * links.gpus_a_node
    batch = work.rank_batch(ranks)
    memory = gpu.memory_gb_s * 1e9 * _MEMORY
    dense = (
        work.dense.step_flops(batch, ranks) / (gpu.tflops(work.precision) * 1e12 * _MATMUL)
        + batch * work.dense.activations * work.value_bytes * _PASSES / memory
    )
    tables = batch * work.read_bytes * _ROW_PASSES / memory
    exchange = _exchanged(batch * work.pooled_bytes * 2, links, nodes)
    gradients = _reduced(work.dense.params * 4, links, nodes)
    if exchange is None or gradients is None:
        return None
    return StepTime(
        batch=batch,
        ranks=ranks,
        dense=dense,
        tables=tables,
        exchange=exchange,
        gradients=gradients,
        host=_LAUNCH_S if ranks > 1 else _LAUNCH_ALONE_S,
        input=batch * work.sample_bytes / _READ_BYTES_S,
    )


def _exchanged(amount: float, links: Links, nodes: int) -> float | None:
    """Return seconds in which each rank sends this many bytes, spread evenly over all ranks."""
    ranks = nodes * links.gpus_a_node
    inside = amount * (links.gpus_a_node - 1) / ranks
    across = amount * (ranks - links.gpus_a_node) / ranks
    if (inside and not links.within_bytes_s) or (across and not links.across_bytes_s):
        return None
    within_s = inside / links.within_bytes_s if inside else 0.0
    across_s = across / links.across_bytes_s if across else 0.0
    return max(within_s, across_s)


def _reduced(amount: float, links: Links, nodes: int) -> float | None:
    """Return seconds of an all-reduce of this many bytes: inside a node, then across nodes."""
    ranks = nodes * links.gpus_a_node
    measured = links.measured(nodes)
    if measured is not None:
        return 2 * (ranks - 1) / ranks * amount / (measured.all_reduce_gb_s * 1e9)
    seconds = 0.0
    if links.gpus_a_node > 1:
        if not links.within_bytes_s:
            return None
        seconds += 2 * amount / links.within_bytes_s
    if nodes > 1:
        if not links.across_bytes_s:
            return None
        # After the reduction inside the node each of its GPUs exchanges its own part.
        seconds += 2 * amount / links.gpus_a_node / links.across_bytes_s
    return seconds

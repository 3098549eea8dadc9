"""The planner's arithmetic: published runs, memory by part, parts of GPUs, spot, and the order of offers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudrec import providers
from cloudrec.planning.fit.gpus import gpu_rates
from cloudrec.planning.fit.layers import LayerSizes, dense_work
from cloudrec.planning.fit.memory import rank_memory
from cloudrec.planning.fit.offers import MachineOffer, best_of_each, goodput, planned_offers, ranked
from cloudrec.planning.fit.step import Links, step_time
from cloudrec.planning.fit.work import TrainingWork

# The tables of Criteo-1TB, limited to 40 M rows, as in MLPerf.
CRITEO = (
    *(39_884_406, 39_043, 17_289, 7_420, 20_263, 3, 7_120, 1_543, 63, 38_532_951, 2_953_546, 403_346, 10),
    *(2_208, 11_938, 155, 4, 976, 14, 39_979_771, 25_641_295, 39_664_984, 585_935, 12_972, 108, 36),
)
LAYERS = LayerSizes(num_dense=13, vectors=[128] * 26, bottom=(512, 256, 128), top=(1024, 1024, 512, 256, 1))
DLRM = TrainingWork(table_rows=CRITEO, dim=128, ids=26, dense=dense_work("dlrm", LAYERS), precision="bf16")
ONE_GPU = replace(DLRM, batch=65_536, weights="fp16", table_optimizer="sgd")
DCN = replace(DLRM, ids=214, dense=dense_work("dcn_v2", LAYERS), global_batch=65_536)
MILLIONS = replace(DLRM, table_rows=(1_000_000,) * 26, batch=65_536)
ALONE = Links(gpus_a_node=1, inside_gb_s=0.0, across_gb_s=0.0)
DGX_H100 = Links(gpus_a_node=8, inside_gb_s=450.0, across_gb_s=50.0)
BOX = MachineOffer(
    provider="aws", region="us-east-1", instance_type="p5.48xlarge", capacity="on-demand", gpu="H100", gpus=8,
    gpu_gib=80, nvlink_gb_s=900, network_gbit_s=3200, joins_nodes=True, hourly_usd=55.04, price="2026-07-20",
)  # fmt: skip


@pytest.mark.parametrize(
    ("work", "gpu", "where", "published", "factor"),
    [
        # NVIDIA DeepLearningExamples, DLRM, one A100-80GB, AMP.
        (ONE_GPU, ("A100", 80), (ALONE, 1), 4.55e6, 1.0),
        # MLPerf Training 4.0, DLRM-DCNv2, NVIDIA.
        (DCN, ("H100", 80), (DGX_H100, 1), 13.8e6, 0.8),
        (DCN, ("H100", 80), (DGX_H100, 16), 65e6, 0.7),
        # This trainer on one H200, where the GPU was the limit (benchmarks/results/gpu/2026-11-26-first.md).
        (replace(MILLIONS, precision="fp32"), ("H200", 141), (ALONE, 1), 2.468e6, 0.7),
        (replace(MILLIONS, precision="tf32"), ("H200", 141), (ALONE, 1), 5.323e6, 1.14),
    ],
)
def test_the_gpus_part_of_a_step_agrees_with_published_runs(
    work: TrainingWork, gpu: tuple[str, float], where: tuple[Links, int], published: float, factor: float
) -> None:
    rates = gpu_rates(*gpu)
    assert rates is not None
    links, nodes = where
    step = step_time(work, rates, links, nodes=nodes)
    assert step is not None
    # Their readers and CUDA graphs are not this trainer's: the host and the input are left out.
    assert step.batch * step.ranks / step.on_gpu / published == pytest.approx(factor, abs=0.06)


def test_a_bucket_costs_what_the_dataset_and_two_checkpoints_take_for_the_hours() -> None:
    work = replace(MILLIONS, samples=1_000_000_000)
    box = replace(BOX, storage_usd=0.023 / 730, storage_price="2026-11-27")
    (priced,), (unpriced,) = (list(planned_offers(work, [each], most_nodes=1)) for each in (box, BOX))
    dataset = 1_000_000_000 * (26 * 4 + 64)
    rows = 26_000_000 * (128 * 4 + 4)  # fp32 with row-wise Adagrad
    gib = (dataset + 2 * (rows + work.dense.params * 16)) / 2**30
    assert priced.hours is not None
    assert priced.usd_by_part["storage"] == pytest.approx(gib * 0.023 / 730 * priced.hours)
    assert priced.usd == pytest.approx(55.04 * priced.hours + (priced.usd_by_part["storage"] or 0.0))
    assert unpriced.usd_by_part["storage"] is None
    assert unpriced.usd == pytest.approx(55.04 * priced.hours)
    (moved,) = planned_offers(work, [replace(BOX, traffic_usd=0.09, traffic_price="a table")], most_nodes=1)
    assert moved.usd_by_part["egress"] == pytest.approx(dataset / 2**30 * 0.09)
    assert moved.usd == pytest.approx((unpriced.usd or 0.0) + dataset / 2**30 * 0.09)
    (unknown,) = planned_offers(MILLIONS, [box], most_nodes=1)
    assert (unknown.usd, unknown.usd_by_part["storage"]) == (None, None)


def test_evaluations_take_a_third_of_a_steps_work_each_time() -> None:
    work = replace(MILLIONS, samples=1_000_000_000)
    plain, scored, often = (
        next(planned_offers(each, [BOX], most_nodes=1))
        for each in (
            work,
            replace(work, scored=100_000_000),
            replace(work, scored=100_000_000, eval_interval=500),
        )
    )
    assert plain.hours_by_part["evaluation"] == 0.0
    a_tenth = scored.hours_by_part["training"] / 10
    # A third of the products and rows, and half of the exchange.
    assert a_tenth / 3 <= scored.hours_by_part["evaluation"] <= a_tenth / 2
    # 1,908 steps of 8 x 65,536 samples: after 500, 1,000, 1,500, and at the end.
    assert often.hours_by_part["evaluation"] == pytest.approx(4 * scored.hours_by_part["evaluation"])
    for each in (plain, scored, often):
        assert each.hours == pytest.approx(sum(each.hours_by_part.values()))
    (spot,) = planned_offers(work, [replace(BOX, capacity="spot")], most_nodes=1)
    assert spot.hours_by_part["interruptions"] == pytest.approx(
        spot.hours_by_part["training"] * (1 / goodput("spot", 1) - 1)
    )


def test_the_input_limits_long_samples_of_a_small_model_and_the_host_a_small_batch() -> None:
    rates = gpu_rates("H200", 141)
    assert rates is not None
    narrow = LayerSizes(num_dense=13, vectors=[8] * 26, bottom=(16, 8), top=(16, 1))
    long = replace(DLRM, batch=65_536, ids=2000, dim=8, dense=dense_work("dlrm", narrow))
    large = step_time(long, rates, ALONE, nodes=1)
    small = step_time(replace(DLRM, batch=1024), rates, ALONE, nodes=1)
    assert large is not None
    assert small is not None
    assert (large.limited_by, small.limited_by) == ("input", "host")
    assert large.seconds == large.input > large.on_gpu


def test_a_link_of_unknown_speed_gives_no_time() -> None:
    rates = gpu_rates("A100", 40)
    assert rates is not None
    assert step_time(DCN, rates, Links(gpus_a_node=8, inside_gb_s=0.0, across_gb_s=5.0), nodes=1) is None
    assert step_time(DCN, rates, Links(gpus_a_node=1, inside_gb_s=0.0, across_gb_s=0.0), nodes=2) is None


def test_memory_is_the_sum_of_its_parts_and_decides() -> None:
    whole = rank_memory(DCN, ranks=8, gpu_gib=80.0)
    assert whole.fits is True
    parts = whole.tables + whole.dense + whole.activations + whole.exchange + whole.reserved
    assert whole.need == pytest.approx(parts)
    assert whole.tables == pytest.approx(DCN.table_bytes / 8 / 2**30, rel=0.02)
    just = rank_memory(DCN, ranks=8, gpu_gib=whole.need)
    assert just.fits is True
    assert rank_memory(DCN, ranks=8, gpu_gib=just.need * 0.8).fits is False


def test_tables_that_fit_with_a_batch_that_may_not_are_no_answer() -> None:
    large = replace(MILLIONS, precision="fp32", table_rows=(750_000,) * 26, table_optimizer="adagrad")
    tight = rank_memory(large, ranks=1, gpu_gib=24.0)
    assert tight.fits is None
    assert tight.tables + tight.exchange < 24.0 * 0.85 < tight.need
    smaller = rank_memory(replace(large, batch=8192), ranks=1, gpu_gib=24.0)
    assert smaller.fits is True
    by_host = replace(large, table_rows=(10_000_000,) * 26, may_use_host=True)
    assert rank_memory(by_host, ranks=1, gpu_gib=24.0).fits is None
    assert rank_memory(replace(by_host, may_use_host=False), ranks=1, gpu_gib=24.0).fits is False


@pytest.mark.parametrize(
    ("optimizer", "row_bytes"), [("sgd", 0), ("rowwise_adagrad", 4), ("adagrad", 512), ("adam", 1024)]
)
def test_the_state_of_a_table_is_its_optimizers(optimizer: str, row_bytes: int) -> None:
    assert replace(DLRM, table_optimizer=optimizer).row_bytes(128) == 512 + row_bytes


def test_tables_of_several_widths_and_shared_tables_are_counted_once() -> None:
    work = replace(DLRM, table_rows=(1000, 10), table_dims=(16, 64), vector_dims=(16, 16, 64), ids=4.0)
    assert work.table_bytes == 1000 * (64 + 4) + 10 * (256 + 4)
    assert work.pooled_bytes == (16 + 16 + 64) * 4
    assert work.read_bytes == pytest.approx(4.0 * 32 * 4)


def test_a_part_of_a_gpu_has_that_part_of_its_rates_and_an_unknown_gpu_has_none() -> None:
    whole, part = gpu_rates("A10", 24), gpu_rates("A10", 8)
    assert whole is not None
    assert part is not None
    assert part.memory_gb_s == pytest.approx(whole.memory_gb_s / 3)
    assert gpu_rates("A10G", 22) == gpu_rates("A10G", 24)  # what the system keeps is no part
    assert gpu_rates("GX1", 24) is None


def test_the_gpus_of_every_machine_type_are_in_the_table_or_unknown_by_name() -> None:
    known = {
        each.gpu
        for name in providers.names()
        for each in providers.hardware(name).values()
        if gpu_rates(each.gpu, each.gpu_memory_gib) is None
    }
    assert known <= {"RTX PRO 4500", "RTX PRO 6000", "T4g"}


def test_spot_nodes_are_slower_by_their_expected_ends() -> None:
    assert goodput("on-demand", 8) == 1.0
    assert 0.9 < goodput("spot", 1) < 1.0
    assert goodput("spot", 8) < goodput("spot", 4)


def test_offers_are_tried_with_more_nodes_and_the_best_is_first() -> None:
    work = replace(DCN, samples=10**9, global_batch=1 << 20)  # enough for the GPUs of 4 nodes
    alone = replace(BOX, instance_type="alone", joins_nodes=False, hourly_usd=100.0)
    unpriced = replace(BOX, instance_type="unpriced", hourly_usd=None)
    offers = list(planned_offers(work, [BOX, alone, unpriced], most_nodes=4))
    assert [(each.machine.instance_type, each.nodes) for each in offers] == [
        *(("p5.48xlarge", nodes) for nodes in (1, 2, 4)), ("alone", 1),
        *(("unpriced", nodes) for nodes in (1, 2, 4)),
    ]  # fmt: skip
    cheapest = ranked(offers, "usd")
    costs = [each.usd for each in cheapest if each.usd is not None]
    assert costs == sorted(costs)
    assert {each.machine.instance_type for each in cheapest[-3:]} == {"unpriced"}
    assert ranked(offers, "hours")[0].nodes == 4
    assert len(best_of_each(cheapest)) == 3


def test_what_cannot_be_done_says_why() -> None:
    small = replace(BOX, instance_type="small", gpus=1, gpu_gib=22, gpu="A10G", joins_nodes=False)
    (refused,) = planned_offers(DCN, [small], most_nodes=8)
    assert refused.refusal.startswith("each GPU needs 1")
    assert "tables" in refused.refusal
    odd = replace(BOX, gpus=6)
    (uneven,) = planned_offers(DCN, [odd], most_nodes=1)
    assert uneven.refusal == "a step of 65,536 samples cannot be divided among 6 GPUs"
    assert (refused.fits, uneven.fits) == (False, False)
    batch = replace(MILLIONS, precision="fp32", table_rows=(750_000,) * 26, table_optimizer="adagrad")
    (tight,) = planned_offers(batch, [replace(small, gpu_gib=24)], most_nodes=1)
    assert tight.fits is None
    assert tight.refusal.endswith("the tables fit, but a step with this batch may not")
    assert ranked([refused, uneven, tight], "usd") == []

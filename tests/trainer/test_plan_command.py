from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from torchrec.distributed.planner.constants import HBM_MEM_BW

from cloudrec.planning.fit.gpus import gpu_rates
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_learner import ROWS, make_learner, train_losses
from trainer.commands.plan import main
from trainer.sharding.cards import speeds_of
from trainer.sharding.topology import Machines, make_topology

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds

CRITEO_1TB = (
    "45833188,36746,17245,7413,20243,3,7114,1441,62,29275261,1572176,345138,10,2209,11267,128,4,974,14,"
    "48937457,11316796,40094537,452104,12606,104,35"
)
MLPERF = ["--embedding_dim", "128", "--dense_arch_layer_sizes", "512,256,128"]
SMALL = ["--embedding_dim", "8", "--dense_arch_layer_sizes", "16,8"]


def _plan(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = main(["--json", *words])
    shown = capsys.readouterr()
    assert (code, shown.err) == (0, "")
    document: dict[str, Any] = json.loads(shown.out)
    return document


def _error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = main(["--json", *words])
    shown = capsys.readouterr()
    assert (code, shown.out, shown.err.count("\n")) == (64, "", 1)
    return shown.err


def test_the_terabyte_tables_are_planned_for_absent_gpus(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--num_embeddings_per_feature", CRITEO_1TB, *MLPERF, "--hbm_cap_gb", "40"]
    document = _plan(capsys, "--world_size", "16", *words)
    held = document["weight_bytes_by_rank"]
    assert sum(held) == sum(map(int, CRITEO_1TB.split(","))) * 128 * 4
    assert max(held) < 40e9
    halves = _plan(capsys, "--world_size", "16", "--embedding_weight_precision", "fp16", *words)
    assert sum(halves["weight_bytes_by_rank"]) * 2 == sum(held)


def test_tables_that_do_not_fit_are_reported_with_sizes_unless_host_memory_is_allowed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--world_size", "1", "--num_embeddings_per_feature", CRITEO_1TB, *MLPERF]
    assert "they need 91.1 GB (C20 alone 25.1), and each of 1 ranks has 68 GB of GPU memory" in _error(
        capsys, *words
    )
    spilled = ["--compute_kernels", "fused,fused_uvm_caching"]
    for planner in ("greedy", "dynamic_programming"):
        document = _plan(capsys, *words, *spilled, "--planner", planner)
        kernels = {entry["compute_kernel"] for entry in document["tables"].values()}
        assert kernels == {"fused", "fused_uvm_caching"}, planner


def test_a_plan_follows_the_constraints_of_each_table(capsys: pytest.CaptureFixture[str]) -> None:
    constraints = "{C2: {sharding_types: [row_wise]}, C3: {compute_kernels: [fused_uvm]}}"
    words = ["--num_embeddings_per_feature", "4000,3000,2000", "--table_constraints", constraints]
    document = _plan(capsys, "--world_size", "4", "--sharding_types", "table_wise", *words)
    tables = document["tables"]
    assert {name: (entry["sharding_type"], entry["compute_kernel"]) for name, entry in tables.items()} == {
        "C1": ("table_wise", "fused"),
        "C2": ("row_wise", "fused"),
        "C3": ("table_wise", "fused_uvm"),
    }
    assert [piece["rows"] for piece in tables["C2"]["shards"]] == [[750 * rank, 750] for rank in range(4)]


def test_the_cache_of_tables_in_host_memory_has_the_requested_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--world_size", "1", "--num_embeddings_per_feature", "4000,3000,2000"]
    own = "{C2: {uvm_cache_load_factor: 0.5}, C3: {compute_kernels: [fused_uvm]}}"
    kernels = ["--compute_kernels", "fused_uvm_caching", "--table_constraints", own]
    document = _plan(capsys, *sizes, *kernels, "--uvm_cache_load_factor", "0.1")
    assert {name: entry.get("uvm_cache_load_factor") for name, entry in document["tables"].items()} == {
        "C1": 0.1,
        "C2": 0.5,
        "C3": None,
    }
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document))
    assert _plan(capsys, *sizes, "--sharding_plan", str(file)) == document
    document["tables"]["C1"]["uvm_cache_load_factor"] = 1.5
    file.write_text(json.dumps(document))
    message = _error(capsys, *sizes, "--sharding_plan", str(file))
    assert "its uvm_cache_load_factor of C1 is 1.5; it must be a number between 0 and 1" in message


def test_the_batch_of_all_ranks_is_shared_by_them(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--world_size", "2", "--num_embeddings_per_feature", "4000000,1000000"]
    words += ["--embedding_dim", "64", "--hbm_cap_gb", "4"]
    refused = [_error(capsys, *words, *each) for each in (
        ["--batch_size", "20000000"], ["--global_batch_size", "40000000"],
    )]  # fmt: skip
    assert refused[0] == refused[1]
    assert "do not fit" in refused[0]


def test_a_larger_cache_uses_more_gpu_memory(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--world_size", "1", "--num_embeddings_per_feature", "400000000", *MLPERF]
    words += ["--compute_kernels", "fused_uvm_caching", "--ddr_cap_gb", "600"]
    document = _plan(capsys, *words, "--uvm_cache_load_factor", "0.2")
    assert document["tables"]["C1"]["uvm_cache_load_factor"] == 0.2
    assert "do not fit" in _error(capsys, *words, "--uvm_cache_load_factor", "0.5")


def test_a_plan_made_offline_can_be_used_for_training(
    worlds: Worlds, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ",".join(map(str, ROWS))
    words = ["--target", "cpu", "--sharding_types", "column_wise", "--table_optimizer", "adagrad"]
    words += ["--num_embeddings_per_feature", sizes]
    document = _plan(capsys, "--world_size", "2", *SMALL, *words)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document))
    assert len(worlds.run(2, _losses, str(file))[0]) == 3


def _losses(place: Place, plan: str) -> list[float]:
    return train_losses(place, make_learner(place, sharding_plan=plan, table_optimizer="adagrad"), [64] * 3)


def test_sizes_default_to_those_of_the_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dataset(tmp_path, train_rows=50)
    document = _plan(capsys, "--world_size", "2", "--dataset_path", str(tmp_path))
    sizes = json.loads((tmp_path / "dataset.json").read_text())["num_embeddings_per_feature"]
    assert {name: entry["rows"] for name, entry in document["tables"].items()} == sizes


def test_sizes_can_come_from_a_custom_loader(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--world_size", "2", "--dataset", "tests.trainer.test_data_formats:good"]
    document = _plan(capsys, *words, "--num_embeddings", "30")
    assert {name: entry["rows"] for name, entry in document["tables"].items()} == {"C1": 30, "C2": 30}
    assert "the table of C1 has 3 rows, but the dataset's ids need 7" in _error(
        capsys, *words, "--num_embeddings", "3"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--world_size", "0"], "--world-size: must be a whole number above 0, but it is '0'"),
        (["--world_size", "2"], "the tables' sizes are not known"),
        (["--world_size", "3", "--local_world_size", "2"], "must be a multiple of local_world_size 2"),
        (["--world_size", "2", "--bogus"], "unknown flag --bogus"),
        (
            ["--world_size", "2", "--num_embeddings_per_feature", "3000000000"],
            "C1 has 3000000000 rows",
        ),
        (
            ["--world_size", "2", "--num_embeddings_per_feature", "9", "--table_constraints", "{X: {}}"],
            "table_constraints names X, but the model's tables are C1",
        ),
        (
            ["--world_size", "2", "--num_embeddings_per_feature", "9", "--global_batch_size", "3"],
            "global_batch_size 3 cannot be shared evenly by 2 ranks",
        ),
    ],
)
def test_errors_are_one_line_with_exit_code_64(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert message in _error(capsys, *words)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("INTRA_NODE_BANDWIDTH", "fast", "INTRA_NODE_BANDWIDTH is 'fast'; it must be a number of bytes"),
        ("CROSS_NODE_BANDWIDTH", "-1", "CROSS_NODE_BANDWIDTH is '-1'"),
        ("STORAGE_RESERVE_PERCENT", "15", "STORAGE_RESERVE_PERCENT is '15'; it must be a fraction"),
    ],
)
def test_figures_from_the_environment_are_checked(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    message: str,
) -> None:
    monkeypatch.setenv(variable, value)
    assert message in _error(capsys, "--world_size", "2", "--num_embeddings_per_feature", "9")


def test_reserved_memory_is_excluded_from_the_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--world_size", "1", "--num_embeddings_per_feature", "100000", "--hbm_cap_gb", "0.06"]
    _plan(capsys, *words)
    monkeypatch.setenv("STORAGE_RESERVE_PERCENT", "0.7")
    assert "the tables do not fit" in _error(capsys, *words)


def test_planning_replicas_prints_nothing_on_stderr() -> None:
    words = ["--world_size", "2", "--num_embeddings_per_feature", "100,200", "--data_parallel"]
    done = subprocess.run(
        [sys.executable, "-m", "trainer.plan", *words], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[1].split() == ["C1", "data_parallel", "dense", "all", "all", "all"]


def test_every_process_computes_the_same_plan() -> None:
    """torchrec leaves ties to the order of sets of strings, which differs from process to process."""
    words = ["--world_size", "1", "--num_embeddings_per_feature", "100,200"]
    shown = {
        subprocess.run(
            [sys.executable, "-m", "trainer.plan", *words],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(shown) == 1
    assert shown.pop().splitlines()[1].split()[:3] == ["C1", "table_wise", "fused"]


def test_the_plan_of_a_checkpoint_is_refused_where_no_checkpoint_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--world_size", "2", "--num_embeddings_per_feature", "10,20", "--sharding_plan", "checkpoint")
    assert "this command reads no checkpoint; give the sharding_plan.json of the run" in _error(
        capsys, *words
    )


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("NVIDIA H200", 4800),
        ("NVIDIA H100 80GB HBM3", 3350),
        ("NVIDIA H100 PCIe", 2000),
        ("NVIDIA A100-SXM4-40GB", 1555),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA L4", 300),
        ("NVIDIA L40S", 864),
        ("NVIDIA A10G", 600),
        ("Tesla V100-SXM2-16GB", 900),
        ("NVIDIA L40", None),
        ("NVIDIA GeForce RTX 4090", None),
        (None, None),
    ],
)
def test_the_planner_counts_with_the_speed_of_the_card(name: str | None, memory: int | None) -> None:
    machines = Machines(
        world_size=2, local_world_size=2, device="cuda", hbm_bytes=10**10, ddr_bytes=10**10, card=name
    )
    topology = make_topology(machines, {})
    expected = HBM_MEM_BW if memory is None else memory * 10**9 / 1000
    assert topology.hbm_mem_bw == expected
    named = make_topology(machines, {"INTRA_NODE_BANDWIDTH": "5e9"})
    assert named.intra_host_bw == 5e6


@pytest.mark.parametrize(
    ("name", "gpu", "gib"),
    [
        ("NVIDIA B300", "B300", 269),
        ("NVIDIA B200", "B200", 180),
        ("NVIDIA GB200", "GB200", 186),
        ("NVIDIA H200", "H200", 141),
        ("NVIDIA H100 80GB HBM3", "H100", 80),
        ("NVIDIA H100 NVL", "H100", 94),
        ("NVIDIA A100-SXM4-80GB", "A100", 80),
        ("NVIDIA A100-SXM4-40GB", "A100", 40),
        ("NVIDIA A10", "A10", 24),
        ("NVIDIA A10G", "A10G", 24),
        ("NVIDIA L4", "L4", 24),
        ("NVIDIA L40S", "L40S", 48),
        ("Tesla T4", "T4", 16),
    ],
)
def test_the_speeds_are_those_that_estimates_of_cost_use(name: str, gpu: str, gib: float) -> None:
    rates, speeds = gpu_rates(gpu, gib), speeds_of(name)
    assert rates is not None
    assert speeds is not None
    assert speeds.memory == rates.memory_gb_s * 10**9


def test_an_unknown_card_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--world_size", "1", "--num_embeddings_per_feature", "10,20", "--gpu", "H20O"]
    assert "gpu is 'H20O', whose speeds are not known" in _error(capsys, *words)

"""`cloudrec plan` says "fits" exactly where the planner of torchrec finds a place for every table."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cloudrec.planning.fit.layers import LayerSizes, dense_work
from cloudrec.planning.fit.memory import rank_memory
from cloudrec.planning.fit.work import TrainingWork

pytestmark = pytest.mark.slow
MADE_UP = "trainer.data.formats.synthetic:made_up"


def _work(rows: int, dim: int, batch: int, optimizer: str) -> TrainingWork:
    return TrainingWork(
        table_rows=[rows] * 26,
        dim=dim,
        ids=26,
        dense=dense_work(
            "dlrm", LayerSizes(num_dense=13, vectors=[dim] * 26, bottom=(512, 256, dim), top=(512, 256, 1))
        ),
        batch=batch,
        table_optimizer=optimizer,
    )


@pytest.mark.parametrize(
    ("ranks", "gb", "work"),
    [
        (8, 14, _work(7_000_000, 128, 8192, "rowwise_adagrad")),
        (8, 40, _work(10_000_000, 128, 65_536, "adagrad")),
        (2, 3, _work(1_000_000, 64, 4096, "sgd")),
        (4, 24, _work(3_000_000, 128, 32_768, "rowwise_adagrad")),
    ],
)
def test_both_planners_give_the_same_answer(ranks: int, gb: int, work: TrainingWork) -> None:
    command = [
        *(sys.executable, "-m", "trainer.plan", "--dataset", MADE_UP, "--world_size", str(ranks)),
        *(
            "--local_world_size",
            str(ranks),
            "--hbm_cap_gb",
            str(gb),
            "--num_embeddings",
            str(work.table_rows[0]),
        ),
        *("--embedding_dim", str(work.dim), "--dense_arch_layer_sizes", f"512,256,{work.dim}"),
        *("--batch_size", str(work.batch), "--table_optimizer", work.table_optimizer),
    ]
    planned = subprocess.run(command, capture_output=True, text=True, check=False)
    assert planned.returncode in (0, 64), planned.stderr
    assert rank_memory(work, ranks=ranks, gpu_gib=gb * 1e9 / 2**30).fits is (planned.returncode == 0)

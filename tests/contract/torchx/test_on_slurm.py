"""`torchx run -s slurm` on a real Slurm of two nodes: submit, status, log, and the end of a run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.slurm.support_slurm import running_slurm
from tests.contract.torchx.support_torchx import environment, interpreter
from tests.trainer.support_dataset import write_dataset

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
PATIENCE_S = 300.0
SMALL = (
    *("--embedding_dim", "8", "--dense_arch_layer_sizes", "8", "--over_arch_layer_sizes", "8,1"),
    *("--global_batch_size", "50", "--num_epochs", "1", "--log_interval", "10", "--threads", "1"),
)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A cluster with accounting, whose nodes' names are addresses, as on any real one.

    The names are in a hosts file that only the cluster's own mount namespace has.
    """
    hosts = tmp_path_factory.mktemp("names") / "hosts"
    names = "".join(f"127.0.0.1 n{number}\n" for number in (1, 2))
    hosts.write_text(Path("/etc/hosts").read_text(encoding="utf-8") + names)
    namespace = ("unshare", "--mount", "bash", "-c", f'mount --bind {hosts} /etc/hosts && exec "$@"', "slurm")
    probe = subprocess.run([*namespace, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no mount namespace here: {probe.stderr.strip()}")
    with running_slurm("--accounting", through=namespace) as variables:
        yield variables


def _torchx(variables: dict[str, str], folder: Path, *words: str) -> str:
    done = subprocess.run(
        [str(interpreter()), "-m", "torchx.cli.main", *words],
        cwd=folder,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_nodes_train_together_with_status_and_log(slurm: dict[str, str], tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", train_rows=503, test_rows=100, num_dense=3, num_sparse=4)
    flags = ("--dataset_path", str(tmp_path / "data"), *SMALL)
    asked = ("-j", "2x1", "--python", sys.executable, "--", *flags)
    handle = _torchx(slurm, tmp_path, "run", "-s", "slurm", "cloudrec.torchx:dlrm", *asked).split()[-1]
    give_up = time.monotonic() + PATIENCE_S
    while "State: SUCCEEDED" not in (status := _torchx(slurm, tmp_path, "status", handle)):
        printed = {path.name: path.read_text()[-2000:] for path in tmp_path.glob("slurm-*.out")}
        assert "State: FAILED" not in status, printed
        assert time.monotonic() < give_up, (status, printed)
        time.sleep(1)
    log = _torchx(slurm, tmp_path, "log", "--streams", "stdout", handle)
    assert "finished at step 11 of 11, 503 samples" in log
    assert {f"[rank {rank}]" for rank in (0, 1)} <= {
        f"[rank {line.partition('[rank ')[2][:1]}]" for line in log.splitlines()
    }
    # Both nodes are this host, so either may be the first of the rendezvous.
    (summary,) = (tmp_path / "cloudrec-runs" / handle.rpartition("/")[2]).glob("node-*/run/summary.json")
    assert json.loads(summary.read_text(encoding="utf-8"))["world_size"] == 2

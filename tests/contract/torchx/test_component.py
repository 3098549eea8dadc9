"""`torchx run cloudrec.torchx:dlrm` by TorchX itself: the request to each scheduler, and a run."""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cloudrec.transport import plain
from tests.contract.torchx.support_torchx import ROOT, ask, torchx
from tests.trainer.support_dataset import write_dataset

# TorchX's commands `run`, `status` and `log` in one process: local_cwd does not persist its jobs, so
# another process cannot see them.
RUN = """
import json, sys, time
from torchx.runner import get_runner
from torchx.specs import is_terminal
with get_runner() as runner:
    handle = runner.run_component("cloudrec.torchx:dlrm", sys.argv[1:], "local_cwd")
    states = []
    while not states or not is_terminal(status.state):
        status = runner.status(handle)
        states += [str(status.state)] if str(status.state) not in states else []
        time.sleep(0.1)
    lines = [line.rstrip() for line in runner.log_lines(handle, "trainer", 0)]
print(json.dumps({"handle": handle, "states": states, "lines": lines}))
"""
DRY = """
import json, sys
from torchx.runner import get_runner
asked = json.loads(sys.argv[1])
with get_runner() as runner:
    requests = {}
    for scheduler in ("slurm", "ray", "kubernetes"):
        chosen = {"queue": "default"} if scheduler == "kubernetes" else {}
        requests[scheduler] = str(runner.dryrun_component("cloudrec.torchx:dlrm", asked, scheduler, chosen))
print(json.dumps(requests))
"""
APP = """
import dataclasses, json, sys
from torchx.specs import materialize_appdef
from torchx.specs.finder import get_component
app = materialize_appdef(get_component("cloudrec.torchx:dlrm").fn, sys.argv[1:])
print(json.dumps(dataclasses.asdict(app)))
"""
SMALL = (
    *("--embedding_dim", "8", "--dense_arch_layer_sizes", "8", "--over_arch_layer_sizes", "8,1"),
    *("--global_batch_size", "50", "--num_epochs", "1", "--log_interval", "10", "--threads", "1"),
)


def _role(folder: Path, *words: str) -> dict[str, Any]:
    (role,) = ask(APP, *words, folder=folder)["roles"]
    assert isinstance(role, dict)
    return role


def test_the_module_imports_only_the_standard_library_the_contract_and_torchx_specs() -> None:
    tree = ast.parse((ROOT / "cloudrec" / "torchx.py").read_text(encoding="utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [f"{node.module}.{each.name}" for each in node.names]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    others = {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in others if not name.startswith("cloudrec_contract.")} == {"torchx.specs"}


def test_the_component_has_the_profiles_of_the_table() -> None:
    assert plain.FILE.read_text(encoding="utf-8") == plain.text(), "python -m cloudrec.transport.plain"


@pytest.mark.parametrize("flag", ["--checkpoint_dir=s3://mine/x", "--checkpoint-dir=s3://mine/x"])
def test_both_spellings_of_a_flag_produce_the_same_command(tmp_path: Path, flag: str) -> None:
    script = _role(tmp_path, "--results", "s3://bucket/runs/a", "--", flag)["args"][1]
    assert "--checkpoint_dir s3://bucket/runs/a/checkpoints --checkpoint_dir=s3://mine/x" in script


def test_torchx_finds_the_component() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["torchx.file"] == {"get_file_contents": "cloudrec.torchx:file_contents"}


def test_an_instance_type_sets_the_transport_the_gpus_and_the_fabric_check(tmp_path: Path) -> None:
    role = _role(tmp_path, "-j", "2x8", "--machine", "p5.48xlarge", "--", "--batch_size", "64")
    assert role["resource"]["gpu"] == 8
    assert role["resource"]["devices"] == {"vpc.amazonaws.com/efa": 32, "hugepages-2Mi": 5368709120}
    assert role["resource"]["capabilities"] == {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    assert (role["num_replicas"], role["min_replicas"]) == (2, None)
    assert role["env"] == {
        "CLOUDREC_RUN": "${app_id}",
        "CLOUDREC_FABRIC": "efa",
        "CLOUDREC_INSTANCE_TYPE": "p5.48xlarge",
        "CLOUDREC_GPUS": "8",
        "CLOUDREC_ALLOW_TCP": "0",
        "CLOUDREC_MAX_RESTARTS": "3",
        "POD_NAME": "${app_id}-${replica_id}",
        "PYTHONUNBUFFERED": "1",
        "NCCL_DEBUG": "INFO",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "true",
    }
    script = role["args"][1].splitlines()
    assert "export NCCL_DEBUG_SUBSYS=INIT,NET" in script  # Slurm's tools split a value at a comma
    assert script[-1] == (
        "exec python -P -m cloudrec.agent agent -- torchrun --nnodes=2 --nproc-per-node=8 "
        "--rdzv-backend=c10d "
        '--rdzv-id=${app_id} --rdzv-endpoint="$${${rank0_env}:=localhost}:29500" --no-python python -P -m '
        'cloudrec.agent rank -- python -P -m trainer --checkpoint_dir "$$CLOUDREC_JOB/checkpoints" '
        "--batch_size 64"
    )


def test_user_settings_override_the_transport_and_come_last(tmp_path: Path) -> None:
    role = _role(
        tmp_path,
        *("-j", "2:4x1", "--fabric", "tcp", "--gpu", "0", "--results", "s3://bucket/runs/a"),
        *("--env", "NCCL_DEBUG=WARN,GLOO_SOCKET_IFNAME=ens5,MINE=a,b"),
        *("--", "--dataset_path", "s3://bucket/it's data"),
    )
    assert (role["num_replicas"], role["min_replicas"], role["resource"]["gpu"]) == (4, 2, 0)
    assert (role["env"]["NCCL_DEBUG"], role["env"]["GLOO_SOCKET_IFNAME"]) == ("WARN", "ens5")
    script = role["args"][1]
    assert "export MINE=a,b" in script
    assert "GLOO_SOCKET_IFNAME" not in script
    assert script.endswith(
        "trainer --checkpoint_dir s3://bucket/runs/a/checkpoints "
        """--dataset_path 's3://bucket/it'"'"'s data'"""
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-j", "2by8"), "-j is '2by8'"),
        (("-j", "3:2x8"), "as many nodes as are to stay"),
        (("--machine", "p9.huge"), "the machine 'p9.huge' is not known; name one of"),
        (("--fabric", "token-ring"), "the fabric 'token-ring' is not known"),
        (("--fabric", "tcpxo"), "tcpxo needs the daemon tcpxo-daemon"),
    ],
)
def test_invalid_requests_are_refused_with_a_message(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    done = torchx("run", "--dryrun", "-s", "local_cwd", "cloudrec.torchx:dlrm", *words, folder=tmp_path)
    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_slurm_ray_and_kubernetes_request_the_same_nodes(tmp_path: Path) -> None:
    words = ["-j", "2x8", "--machine", "p5.48xlarge", "--", "--batch_size", "64"]
    told = ask(DRY, json.dumps(words), folder=tmp_path)
    assert told["slurm"].count("--gpus-per-task=8") == 2
    assert "${SLURM_JOB_NODELIST_HET_GROUP_0:=localhost}:29500" in told["slurm"]
    assert "NCCL_DEBUG_SUBSYS" not in told["slurm"].partition("--export=ALL,")[2].partition(" bash ")[0]
    assert told["ray"].count("num_gpus=8") == 2
    assert "${TORCHX_RANK0_HOST:=localhost}:29500" in told["ray"]
    for wanted in ("nvidia.com/gpu: '8'", "vpc.amazonaws.com/efa: '32'", "hugepages-2Mi: '5368709120'"):
        assert told["kubernetes"].count(wanted) >= 2
    assert "VC_TRAINER_0_HOSTS" in told["kubernetes"]


def test_one_node_with_two_processes_trains_with_status_and_log(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", train_rows=503, test_rows=100, num_dense=3, num_sparse=4)
    flags = ("--dataset_path", str(tmp_path / "data"), *SMALL)
    told = ask(RUN, "-j", "1x2", "--", *flags, folder=tmp_path)
    assert told["states"][-1] == "SUCCEEDED"
    ranks = {line.partition("]")[0] for line in told["lines"] if line.startswith("[rank ")}
    assert ranks == {"[rank 0", "[rank 1"}
    assert any("finished at step 11 of 11, 503 samples" in line for line in told["lines"])
    job = told["handle"].rpartition("/")[2]
    summary = tmp_path / "cloudrec-runs" / job / "node-0" / "run" / "summary.json"
    assert json.loads(summary.read_text(encoding="utf-8"))["status"] == "finished"

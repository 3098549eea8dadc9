"""What smoke jobs measured between GPUs: kept for the right jobs alone, and used in a step's exchange."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cloudrec.agent.checks.smoke_report import Bandwidth, SmokeReport
from cloudrec.app import AppContext
from cloudrec.app.run import smoke_test
from cloudrec.app.run.measured_links import keep_links, kept_links
from cloudrec.home import Home
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.launchers.base.run_folder import create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.planning.fit.gpus import gpu_rates
from cloudrec.planning.fit.step import Links, MeasuredLinks, StepTime, step_time
from cloudrec.providers.base.access import KubernetesAccess
from tests.unit.planning.test_fit import DGX_H100, DLRM

TYPE = "p5.48xlarge"
WORK = replace(DLRM, batch=8192)


@pytest.fixture
def app(tmp_path: Path) -> AppContext:
    return AppContext(home=Home(root=tmp_path / "home"), environment={})


def report(*, nodes: int = 2, gpus: int = 8, device: str = "NVIDIA H100 80GB HBM3") -> SmokeReport:
    return SmokeReport(
        world_size=nodes * gpus,
        nodes=nodes,
        ranks=tuple(
            {"rank": rank, "device": device, "node": f"node-{rank // gpus}"} for rank in range(nodes * gpus)
        ),
        all_reduce=nodes * gpus,
        bandwidths=(
            Bandwidth(operation="all-to-all", mib=256, gb_s=20.0, expected_gb_s=50.0),
            Bandwidth(operation="all-reduce", mib=256, gb_s=150.0, expected_gb_s=400.0),
        ),
    )


def kept(app: AppContext, found: SmokeReport, machine: str = TYPE) -> bool:
    return keep_links(app, found, cluster="rec", provider="aws", machine=machine)


def step(links: Links, nodes: int) -> StepTime:
    rates = gpu_rates("H100", 80)
    assert rates is not None
    found = step_time(WORK, rates, links, nodes=nodes)
    assert found is not None
    return found


def test_the_findings_of_a_smoke_run_on_gpus_keep_what_it_measured(tmp_path: Path) -> None:
    said: list[str] = []
    app = AppContext(home=Home(root=tmp_path / "home"), environment={}, report=said.append)
    spec = RunSpec(name="smoke-1", cluster="rec", provider="aws", nodes=1, nproc_per_node=8, launcher="local")
    run = create_run(app.home.runs, spec)
    run.ledger.append("submitted", launch=1)
    run.ledger.append("started", launch=1, pid=1, born="x")
    run.ledger.append("succeeded", launch=1, attempt=0)
    run.summary_file.write_text(json.dumps({"launch": 1, "status": "finished", **report(nodes=1).document()}))
    target = ClusterTarget(
        kubeconfig="", context="", namespace="cloudrec", service_account="trainer", instance_type=TYPE
    )
    access = KubernetesAccess(
        launchers=("torchrun",), nodes=1, gpus_per_node=8, cores_per_node=96, storage="", target=target
    )
    findings = smoke_test._findings(app, run, spec, access)
    assert [each.ok for each in findings[:2]] == [True, True], findings
    assert findings[0].found == "8 on 1 node (NVIDIA H100 80GB HBM3)"
    assert kept_links(app, "aws", TYPE, across=False) is not None
    assert said == [f"`cloudrec plan` uses these bandwidths for {TYPE}"]


def test_a_measurement_is_kept_for_its_machine_type_and_one_or_several_nodes(app: AppContext) -> None:
    assert kept(app, report())
    found = kept_links(app, "aws", TYPE, across=True)
    assert found is not None
    assert (found.all_to_all_gb_s, found.all_reduce_gb_s, found.nodes, found.cluster) == (
        20.0,
        150.0,
        2,
        "rec",
    )
    assert kept_links(app, "aws", TYPE, across=False) is None
    assert kept_links(app, "aws", "p4d.24xlarge", across=True) is None
    assert kept(app, report(nodes=1))
    one = kept_links(app, "aws", TYPE, across=False)
    assert one is not None
    assert one.nodes == 1


@pytest.mark.parametrize(
    ("found", "machine"),
    [
        (report(device="cpu"), TYPE),
        (report(device="NVIDIA A100-SXM4-40GB"), TYPE),  # a node of the cluster's other type
        (report(nodes=1, gpus=4, device="NVIDIA L40S"), "g6.12xlarge"),  # which has L4
        (report(gpus=2), TYPE),  # of eight: each has a larger share of the network
        (replace(report(nodes=1, gpus=1), bandwidths=()), "p5.4xlarge"),
        (report(), "../../p5"),
    ],
)
def test_jobs_that_say_nothing_of_a_machine_type_are_not_kept(
    app: AppContext, found: SmokeReport, machine: str
) -> None:
    assert not kept(app, found, machine)
    assert not (app.home.root / "links").exists()


def test_the_gpu_is_known_by_the_name_that_torch_has_for_it(app: AppContext) -> None:
    assert kept(app, report(gpus=8, device="NVIDIA A100-SXM4-40GB"), "p4d.24xlarge")
    assert kept(app, report(gpus=4, device="NVIDIA L4"), "g6.12xlarge")


def test_the_exchange_and_the_gradients_are_those_that_were_measured() -> None:
    measured = MeasuredLinks(
        all_to_all_gb_s=20.0, all_reduce_gb_s=150.0, nodes=2, cluster="rec", as_of="2026-11-28"
    )
    links = replace(DGX_H100, across=measured)
    several = step(links, 2)
    sent = several.batch * WORK.pooled_bytes * 2
    assert several.exchange == pytest.approx(sent * 8 / 16 / 20e9)
    assert several.gradients == pytest.approx(2 * 15 / 16 * WORK.dense.params * 4 / 150e9)
    # One node does not use the network between nodes.
    assert step(links, 1) == step(DGX_H100, 1)
    alone = step(replace(DGX_H100, inside=measured), 1)
    assert alone.exchange == pytest.approx(sent * 7 / 8 / 20e9)
    assert alone.gradients == pytest.approx(2 * 7 / 8 * WORK.dense.params * 4 / 150e9)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 9},
        {"all_to_all_gb_s": 0},
        {"all_reduce_gb_s": "fast"},
        {"nodes": None},
        {"cluster": ...},
        {"cluster": "a\x1b[2J"},
        {"all_reduce_gb_s": 10**400},
    ],
)
def test_a_damaged_measurement_is_reported_and_left_out(tmp_path: Path, change: dict[str, object]) -> None:
    said: list[str] = []
    app = AppContext(home=Home(root=tmp_path / "home"), environment={}, report=said.append)
    assert kept(app, report())
    (path,) = (app.home.root / "links").iterdir()
    document = json.loads(path.read_text()) | change
    path.write_text(json.dumps({name: value for name, value in document.items() if value is not ...}))
    assert kept_links(app, "aws", TYPE, across=True) is None
    (line,) = said
    assert "is left out" in line
    assert "doctor --cluster NAME --smoke" in line

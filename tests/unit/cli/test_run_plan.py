"""`cloudrec plan` for the run of a specification: the table, the document, the limits and the errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cloudrec.cli.main import run
from cloudrec.data.format.manifest import digest

Capture = pytest.CaptureFixture[str]
LARGE = (
    *("--embedding_dim", "128", "--dense_arch_layer_sizes", "512,256,128", "--num_embeddings", "7000000"),
    *("--precision", "bf16", "--batch_size", "8192"),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    sizes, splits = {"city": 1000, "shop": 50_000}, {"train": {"rows": 2_000_000, "shards": []}}
    document = {
        "format": "cloudrec-dataset", "schema_version": 1, "dense_features": ["a", "b", "c"],
        "sparse_features": list(sizes), "num_embeddings_per_feature": sizes, "splits": splits,
        "digest": digest(splits, sizes),
    }  # fmt: skip
    (folder / "dataset.json").write_text(json.dumps(document))
    return folder


def planned(capsys: Capture, *words: str) -> dict[str, Any]:
    assert run(["plan", "-o", "json", *words]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_datasets_tables_and_samples_are_planned_at_80_columns(dataset: Path, capsys: Capture) -> None:
    assert run(["plan", "--dataset", str(dataset)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2,000,000 samples; 2 tables of 51,000 rows x 64")
    assert max(map(len, out.splitlines())) <= 80
    assert "estimated" in out


def test_a_dataset_of_this_machine_is_uploaded_for_free(dataset: Path, capsys: Capture) -> None:
    offers = planned(capsys, "--dataset", str(dataset))["offers"]
    assert {each["usd_by_part"]["egress"] for each in offers} == {0.0}
    assert {each["basis_by_figure"]["usd"]["egress"] for each in offers} == {
        "one copy, uploads to a cloud are free"
    }


def test_the_layers_of_an_own_model_are_not_known(dataset: Path, capsys: Capture) -> None:
    (dataset.parent / "own.py").write_text("def build(inputs):\n    raise NotImplementedError\n")
    assert run(["plan", "--dataset", str(dataset), "--", "--model", "own:build"]) == 0
    out = capsys.readouterr().out
    assert "The layers of own:build are not known, so they are counted as dlrm's" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_every_element_of_the_document_is_documented(dataset: Path, capsys: Capture) -> None:
    document = planned(capsys, "--dataset", str(dataset), "--capacity", "any")
    assert document["samples"] == 2_000_000
    offers = [each for each in document["offers"] if each["fits"]]
    wanted = {"provider", "region", "type", "nodes", "capacity", "fits", "samples_per_s", "hours", "usd"}
    assert wanted | {"limited_by", "basis"} <= set(offers[0])
    assert {each["provider"] for each in offers} == {"aws", "azure", "gcp"}
    assert {each["capacity"] for each in offers} == {"on-demand", "spot"}
    for each in offers:  # an unknown price is unknown, and never 0
        assert (each["usd"] is None) == (each["hourly_usd"] is None or each["hours"] is None)
        assert each["hourly_usd"] != 0


def test_limits_and_choices_leave_only_what_fits_them(capsys: Capture) -> None:
    words = ("--samples", "4000000000", "--gpus", "h100", "--budget", "20", "--hours", "1")
    offers = [each for each in planned(capsys, *words, "--", *LARGE)["offers"] if each["fits"]]
    assert offers
    assert all(each["gpu"] == "H100" and each["usd"] <= 20 and each["hours"] <= 1 for each in offers)
    there = planned(capsys, "--samples", "9", "--regions", "us-east-1", "--provider", "aws", "--", *LARGE)
    assert {each["region"] for each in there["offers"]} == {"us-east-1"}


def test_limits_that_nothing_keeps_are_explained(capsys: Capture) -> None:
    assert run(["plan", "--samples", "4000000000", "--budget", "0.01", "--", *LARGE]) == 0
    assert "Nothing is within the limits: the least cost is $" in capsys.readouterr().out
    assert run(["plan", "--hours", "1", "--", *LARGE]) == 0
    assert "give the samples of an epoch with --samples" in capsys.readouterr().out


def test_what_does_not_fit_has_the_reason(capsys: Capture) -> None:
    offers = planned(capsys, "--samples", "9", "--max-nodes", "1", "--", *LARGE)["offers"]
    small = next(each for each in offers if each["type"] == "g5.xlarge")
    assert not small["fits"]
    assert "each GPU needs" in small["reason"]


def test_a_machine_is_explained_by_part(capsys: Capture) -> None:
    assert run(["plan", "--samples", "9", "--explain", "p5.48xlarge", "--max-nodes", "2", "--", *LARGE]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert "2 x p5.48xlarge, 16 x H100" in out
    assert "memory of each GPU" in out
    assert "limited by:" in out


def test_without_samples_the_order_is_by_the_price_of_a_sample(capsys: Capture) -> None:
    offers = [each for each in planned(capsys, "--", *LARGE)["offers"] if each["fits"]]
    assert all(each["hours"] is None and each["usd"] is None for each in offers)
    prices = [
        each["hourly_usd"] / each["samples_per_s"]
        for each in offers
        if each["hourly_usd"] and each["samples_per_s"]
    ]
    assert prices == pytest.approx(sorted(prices))


def test_up_takes_a_row_of_the_plan(capsys: Capture) -> None:
    offers = planned(capsys, "--samples", "9", "--provider", "aws", "--gpus", "A10G", "--", *LARGE)["offers"]
    row = next(each for each in offers if each["number"] == 1)
    assert run(["up", "gcp", "--from-plan", "1", "--dry-run"]) == 2
    assert f"row 1 of the last plan is on {row['provider']}" in capsys.readouterr().err
    assert run(["up", "--from-plan", "999", "--dry-run"]) == 2
    assert "no row 999" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the sizes of the embedding tables are not known"),
        (["--gpus", "H1000", "--samples", "9", "--", *LARGE], "'H1000'"),
        (["--gpus", "MI300X", "--samples", "9", "--", *LARGE], "no machine type with GPU MI300X can be used"),
        (["--provider", "ibm", "--samples", "9", "--", *LARGE], "ibm"),
        (["--samples", "0"], "--samples"),
        (["--dataset", "nowhere"], "there is no dataset.json at"),
        (["--samples", "9", "--", "--embedding_dim", "7"], "the trainer refuses its configuration"),
        (["--samples", "9", "--explain", "p5.48large", "--", *LARGE], "p5.48xlarge"),
    ],
)
def test_a_wrong_value_is_refused_with_exit_code_2(capsys: Capture, words: list[str], said: str) -> None:
    assert run(["plan", *words]) == 2
    assert said in capsys.readouterr().err


ROW = (
    '{"offers": [{"number": 1, "provider": %s, "region": "", "type": "x", "nodes": %s, "capacity": "spot"}]}'
)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", '{"offers": 3}', '{"offers": [{}]}', '{"offers": [{"number": 1}]}', "\x00"),
        *(ROW % ('["aws"]', 1), ROW % ('"aws"', '"2"'), ROW % ('"aws"', -1), ROW % ('"a\\u001b[2J"', 1)),
    ],
)
def test_a_damaged_plan_is_refused(home: Path, capsys: Capture, text: str) -> None:
    home.mkdir(mode=0o700)
    (home / "plan.json").write_text(text)
    assert run(["up", "--from-plan", "1", "--dry-run"]) == 2
    assert "plan" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", '{"version": 2}', '{"version": 1, "rates": 3}', "\x00"])
def test_a_damaged_calibration_hides_this_machine_alone(home: Path, capsys: Capture, text: str) -> None:
    home.mkdir(mode=0o700)
    (home / "calibration.json").write_text(text)
    words = ["plan", "--samples", "4000000000", "-o", "json"]
    assert run([*words, "--gpus", "h100", "--", *LARGE]) == 0
    capsys.readouterr()
    assert run([*words, "--", *LARGE]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["offers"]
    assert "this machine is left out" in found.err
    assert run([*words, "--provider", "local", "--", *LARGE]) == 2
    assert "run `cloudrec plan --calibrate` again" in capsys.readouterr().err


def test_the_exchange_is_what_a_smoke_job_measured_on_a_cluster_of_the_machines(
    home: Path, capsys: Capture
) -> None:
    words = ["--samples", "4000000000", "--gpus", "h100", "--provider", "aws", "--all", "--", *LARGE]
    before = {(each["type"], each["nodes"]): each for each in planned(capsys, *words)["offers"]}
    (home / "links").mkdir(mode=0o700)
    found = {"version": 1, "all_to_all_gb_s": 2.0, "all_reduce_gb_s": 9.0, "nodes": 2}
    text = json.dumps({**found, "cluster": "rec", "as_of": "2026-11-28"})
    (home / "links" / "aws-p5.48xlarge-across.json").write_text(text)
    after = {(each["type"], each["nodes"]): each for each in planned(capsys, *words)["offers"]}
    one, was = after["p5.48xlarge", 1], before["p5.48xlarge", 1]
    assert (one["step_s"], one["basis_by_figure"]) == (was["step_s"], was["basis_by_figure"])
    several, estimated = after["p5.48xlarge", 4], before["p5.48xlarge", 4]
    assert several["step_s"]["exchange"] > 10 * estimated["step_s"]["exchange"]
    assert several["samples_per_s"] < estimated["samples_per_s"]
    basis = "measured on 2 nodes of cluster rec on 2026-11-28"
    assert several["basis_by_figure"]["exchange"] == basis
    assert estimated["basis_by_figure"]["exchange"] == "estimated"
    assert run(["plan", "--explain", "p5.48xlarge", *words]) == 0
    out = capsys.readouterr().out
    assert f"exchange and gradients: {basis}" in out
    assert max(map(len, out.splitlines())) <= 80


def test_memory_is_explained_by_table_and_gpu(capsys: Capture) -> None:
    rows = "--num_embeddings_per_feature", "40000000,40000000,3000000,20000,500,400,300,200,100"
    words = ["--explain", "p5.48xlarge", "--max-nodes", "1", "--", *LARGE[:4], *rows]
    assert run(["plan", *words]) == 0
    out = capsys.readouterr().out
    assert "    2 of 40,000,000 rows x 128: 19.22 GiB each, divided among 8 GPUs\n" in out
    assert re.search(r"1 of 500 rows x 128: 0\.00 GiB, (whole|divided among 8 GPUs)\n", out)
    assert "    2 smaller ones: 0.00 GiB together\n" in out
    share = re.search(r"tables, (?:[\d.]+ to )?([\d.]+) GiB a GPU", out)
    assert share is not None
    assert float(share[1]) == pytest.approx((2 * 19.22 + 1.44) / 8, abs=0.02)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("machine", "rows", "said"),
    [
        ("g6.48xlarge", "20000000", r"251\.\d GiB of each node's main memory, and 6\.3 GiB of each GPU\n"),
        ("g6.12xlarge", "40000000", r"502\.\d GiB of each node's main memory, which has 192\n"),
    ],
)
def test_what_rows_in_the_hosts_memory_would_take_is_explained(
    capsys: Capture, machine: str, rows: str, said: str
) -> None:
    words = ["--explain", machine, "--max-nodes", "1", "--", *LARGE[:4], "--num_embeddings", rows]
    assert run(["plan", *words]) == 0
    out = capsys.readouterr().out
    assert "not possible" in out
    assert "--compute_kernels fused,fused_uvm_caching" in out
    assert re.search(said, out), out
    assert max(map(len, out.splitlines())) <= 80


def test_the_test_samples_of_a_dataset_are_scored(dataset: Path, capsys: Capture) -> None:
    words = ("--dataset", str(dataset), "--gpus", "h100")
    assert {each["hours_by_part"]["evaluation"] for each in planned(capsys, *words)["offers"]} == {0.0}
    document = json.loads((dataset / "dataset.json").read_text())
    splits = {**document["splits"], "test": {"rows": 1_000_000, "shards": []}}
    document |= {"splits": splits, "digest": digest(splits, document["num_embeddings_per_feature"])}
    (dataset / "dataset.json").write_text(json.dumps(document))
    for each in planned(capsys, *words)["offers"]:
        assert each["hours_by_part"]["evaluation"] > 0
        assert each["hours"] == pytest.approx(sum(each["hours_by_part"].values()))
    assert run(["plan", *words, "--explain", "p5.48xlarge"]) == 0
    assert "  hours: start 0.17, training 0.0" in capsys.readouterr().out


def test_the_cost_can_be_named_cost_or_usd(capsys: Capture) -> None:
    words = ["--samples", "4000000000", "--gpus", "h100", "--", *LARGE]
    (first, second, usual) = (
        planned(capsys, *sort, *words) for sort in (["--sort", "cost"], ["--sort", "usd"], [])
    )
    assert first == second == usual


def test_the_cost_has_its_parts_and_what_each_is_from(capsys: Capture) -> None:
    words = ("--samples", "4000000000", "--gpus", "h100", "--max-nodes", "2", "--", *LARGE)
    offers = [each for each in planned(capsys, *words)["offers"] if each["usd"] is not None]
    assert {each["provider"] for each in offers} == {"aws", "azure", "gcp"}
    for each in offers:
        parts = each["usd_by_part"]
        assert parts["egress"] is None
        assert each["usd"] == pytest.approx(sum(part or 0 for part in parts.values()))
        basis = each["basis_by_figure"]
        assert "from a table (20" in basis["usd"]["nodes"]
        assert (basis["usd"]["storage"] == "unknown") == (parts["storage"] is None)
        assert (basis["usd"]["control_plane"] == "unknown") == (parts["control_plane"] is None)
    known = [each for each in offers if each["usd_by_part"]["control_plane"] is not None]
    assert known
    assert all(
        each["usd_by_part"]["control_plane"] == pytest.approx(0.1 * each["hours"]) for each in known
    )  # the three clouds' published price of a cluster is $0.10 an hour
    stored = [each for each in offers if each["usd_by_part"]["storage"] is not None]
    assert {each["region"] for each in stored} <= {"us-east-1", "us-central1", "us-east1"}
    assert stored


def test_a_picture_is_one_file_that_marks_what_no_offer_beats(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "plan.html"
    words = ("--samples", "4000000000", "--all", "--html", str(file), "--", *LARGE)
    offers = [each for each in planned(capsys, *words)["offers"] if each["fits"] and each["usd"]]
    page = file.read_text(encoding="utf-8")
    best = {
        (each["nodes"], each["type"])
        for each in offers
        if not any(
            other["usd"] <= each["usd"] and other["hours"] <= each["hours"]
            and (other["usd"], other["hours"]) != (each["usd"], each["hours"])
            for other in offers
        )
    }  # fmt: skip
    marked = set(re.findall(r'<tr class="best-row"><th scope="row">(\d+) x ([^<]+)<', page))
    assert {(int(nodes), name) for nodes, name in marked} == best
    assert page.count("<circle") == len(offers)
    assert not re.search(r"<script|<link|src=|url\(|https?:", page)

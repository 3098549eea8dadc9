"""`cloudrec catalog --gpu`: the machine types of all clouds, without a cloud."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudrec.cli.main import run
from cloudrec.providers.base.prices import Price, save

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without credentials of any cloud."""
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path))
    for name in ("AWS_PROFILE", "AZURE_SUBSCRIPTION_ID", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def machines(capsys: Capture, *words: str) -> dict[str, dict[str, Any]]:
    assert run(["catalog", *words, "-o", "json"]) == 0
    return {each["instance_type"]: each for each in json.loads(capsys.readouterr().out)["machines"]}


@pytest.mark.parametrize(
    "gpu", ["A100", "H100", "h200", "B200", "B300", "L40S", "L4", "T4", "A10", "rtx pro 6000"]
)
def test_a_row_fits_into_80_columns(gpu: str, capsys: Capture) -> None:
    assert run(["catalog", "--gpu", gpu]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:2] == ["CLOUD", "TYPE"]
    assert [len(line) for line in table if len(line) > 80] == []


def test_all_clouds_answer_with_price_fabric_memory_and_date(capsys: Capture) -> None:
    found = machines(capsys, "--gpu", "H100")
    assert {each["provider"] for each in found.values()} == {"aws", "azure", "gcp"}
    fabrics = {name: found[name]["fabric"] for name in ("p5.48xlarge", "a3-megagpu-8g", "a3-highgpu-1g")}
    assert fabrics == {"p5.48xlarge": "efa", "a3-megagpu-8g": "tcpxo", "a3-highgpu-1g": "tcp"}
    azure = found["Standard_ND96isr_H100_v5"]
    assert (azure["fabric"], azure["gpu_memory_gib"], azure["gpus"]) == ("infiniband", 80, 8)
    for each in found.values():
        assert each["hourly_usd"]
        assert each["as_of"]
        assert each["source"]
        assert each["region"]


def test_the_machines_with_most_gpus_are_first_and_then_the_cheapest(capsys: Capture) -> None:
    keys = [(-each["gpus"], each["hourly_usd"]) for each in machines(capsys, "--gpu", "A100").values()]
    assert keys == sorted(keys)


def test_a_price_that_was_fetched_replaces_the_shipped_one(home: Path, capsys: Capture) -> None:
    newer = Price(
        region="us-east-1",
        name="p5.48xlarge",
        capacity="on-demand",
        unit="hour",
        usd=1.25,
        as_of="2026-11-24",
        source="test",
    )
    (home / "prices").mkdir()
    save(home / "prices" / "aws-us-east-1.csv", [newer])
    found = machines(capsys, "aws", "--gpu", "H100")["p5.48xlarge"]
    assert (found["hourly_usd"], found["as_of"]) == (1.25, "2026-11-24")


@pytest.mark.parametrize(("place", "expected"), [("eastus", 2.5), ("eastus-a", 2.5), ("eastus2", None)])
def test_the_spot_price_of_another_region_is_not_used(
    place: str, expected: float | None, home: Path, capsys: Capture
) -> None:
    name = "Standard_ND96isr_H100_v5"  # the cheapest on demand in eastus
    spot = Price(
        region=place, name=name, capacity="spot", unit="hour", usd=2.5, as_of="2026-11-24", source="test"
    )
    (home / "prices").mkdir()
    save(home / "prices" / "azure-x.csv", [spot])
    assert machines(capsys, "azure", "--gpu", "H100")[name]["spot_usd"] == expected


def test_a_machine_without_a_known_price_is_listed_last_with_its_fabric(capsys: Capture) -> None:
    found = machines(capsys, "--gpu", "B200")
    assert [*found] == ["p6-b200.48xlarge", "a4-highgpu-8g"]
    google = found["a4-highgpu-8g"]
    assert (google["fabric"], google["network_gbit_s"], google["hourly_usd"]) == ("rdma", 3600, None)


def test_only_one_cloud_is_shown_on_request(capsys: Capture) -> None:
    assert {each["provider"] for each in machines(capsys, "gcp", "--gpu", "A100").values()} == {"gcp"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--gpu", "mi300x"),
            "no machine type with GPU MI300X can be used: Standard_ND96isr_MI300X_v5 of azure",
        ),
        (("--gpu", "GB200"), "p6e-gb200.36xlarge of aws is arm64; the trainer's images are for x86_64"),
        (("--gpu", "H1000"), "no machine type with GPU 'H1000' is known"),
        (("--gpu", "H100", "--refresh"), "--gpu and --refresh exclude each other"),
        (("--gpu", "H100", "--region", "x"), "--gpu and --region exclude each other"),
        (("moon", "--gpu", "H100"), "there is no provider 'moon'"),
        (("local", "--gpu", "H100"), "no machine type with GPU 'H100' is known"),
    ],
)
def test_what_cannot_be_answered_is_refused(words: tuple[str, ...], message: str, capsys: Capture) -> None:
    assert run(["catalog", *words]) == 2
    assert message in capsys.readouterr().err

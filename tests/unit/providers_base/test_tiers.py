"""The choice of the tier of a dataset: by size, room and rate, and never by what is not known."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date

import pytest

from cloudrec.errors import DataError, PreflightError, UsageError
from cloudrec.providers.aws.storage.tiers import RATES as AWS
from cloudrec.providers.azure.storage.tiers import RATES as AZURE
from cloudrec.providers.base.storage import rates, tiers
from cloudrec.providers.base.storage.tiers import BUCKET, LOCAL, LUSTRE, Tier, choose, least
from cloudrec.providers.gcp.storage.tiers import RATES as GCP

DISKS = Tier(
    name=LOCAL, title="local disks", room_gb=7000.0, read_gb_s=16.0, basis="vendor, 2020-11-02", remedy="a"
)
FILES = Tier(name=LUSTRE, title="Lustre", room_gb=5000.0, read_gb_s=1.2, basis="250 MB/s a TiB", remedy="b")
MOUNT = Tier(name=BUCKET, title="the bucket, cached", room_gb=math.inf)
ABSENT = replace(FILES, room_gb=0.0, lacks="the cluster has no Lustre file system")


@pytest.mark.parametrize(
    ("size", "places", "name"),
    [
        (660, (DISKS, FILES, MOUNT), LOCAL),
        (660, (replace(DISKS, room_gb=200.0), FILES, MOUNT), LUSTRE),
        (660, (replace(DISKS, room_gb=200.0), ABSENT, MOUNT), BUCKET),
        (660, (replace(DISKS, room_gb=660.0), ABSENT, MOUNT), BUCKET),  # the margin does not fit
        (660, (DISKS, replace(FILES, read_gb_s=40.0), MOUNT), LUSTRE),  # both rates are known
        (660, (replace(DISKS, read_gb_s=None), replace(FILES, read_gb_s=40.0), MOUNT), LOCAL),
        (660, (DISKS, FILES, replace(MOUNT, read_gb_s=99.0)), LOCAL),
        (660, (replace(DISKS, room_gb=None), FILES, MOUNT), LUSTRE),  # unknown room is not enough
        (660, (replace(DISKS, room_gb=None),), LOCAL),  # and not too little
        (None, (DISKS, FILES, MOUNT), LOCAL),
    ],
)
def test_the_first_tier_with_room_is_chosen(size: float | None, places: tuple[Tier, ...], name: str) -> None:
    assert choose(size, places).tier.name == name


def test_no_room_is_refused_with_size_limits_and_remedies() -> None:
    with pytest.raises(PreflightError) as caught:
        choose(9000, (DISKS, ABSENT, replace(MOUNT, lacks="the dataset is elsewhere", remedy="c")))
    assert caught.value.exit_code == 3
    for part in ("9,000 GB", "105%", "local disks: 7,000 GB", "Lustre: the cluster has no", "elsewhere"):
        assert part in caught.value.message
    assert caught.value.remedy == "a; or b; or c"


def test_a_tier_that_is_asked_for_is_used_or_refused() -> None:
    assert choose(1, (DISKS, FILES, MOUNT), wanted=BUCKET).tier is MOUNT
    with pytest.raises(PreflightError, match="7,000 GB"):
        choose(9000, (DISKS, FILES, MOUNT), wanted=LOCAL)
    with pytest.raises(UsageError, match="'tape'"):
        choose(1, (DISKS,), wanted="tape")


@pytest.mark.parametrize(
    ("size", "tier", "line"),
    [
        (660, DISKS, "660 GB on local disks, 16 GB/s a node (vendor, 2020-11-02)"),
        (0.0123, replace(DISKS, read_gb_s=None, basis=""), "12.3 MB on local disks, GB/s unknown"),
        (None, MOUNT, "size unknown on the bucket, cached, GB/s unknown"),
    ],
)
def test_a_choice_is_one_line(size: float | None, tier: Tier, line: str) -> None:
    found = tiers.DataChoice(tier=tier, size_gb=size).line
    assert found == line
    assert len(found) <= 69


def test_of_several_machines_the_least_room_and_rate_count() -> None:
    slow = replace(DISKS, room_gb=8000.0, read_gb_s=2.0, basis="estimate, 2026-01-01")
    both = least([DISKS, slow])
    assert (both.room_gb, both.read_gb_s, both.basis) == (7000.0, 2.0, "estimate, 2026-01-01")
    assert least([DISKS, replace(DISKS, room_gb=None)]).room_gb is None
    assert least([DISKS, replace(DISKS, read_gb_s=None)]).read_gb_s is None


def test_lustre_is_shared_by_the_nodes_and_limited_by_the_client() -> None:
    client = AWS[LUSTRE, rates.CLIENT]
    few = tiers.lustre(capacity_gib=4800, mb_s_each_tib=250, nodes=2, client=client, remedy="")
    assert few.read_gb_s == pytest.approx(0.586, abs=0.001)
    many = tiers.lustre(capacity_gib=240_000, mb_s_each_tib=1000, nodes=1, client=client, remedy="")
    assert (many.read_gb_s, many.basis) == (12.5, "vendor, 2024-11-27")
    assert tiers.lustre(capacity_gib=0, mb_s_each_tib=250, nodes=1, client=client, remedy="").lacks


@pytest.mark.parametrize("table", [AWS, AZURE, GCP])
def test_every_rate_has_a_date_and_a_source(table: rates.Rates) -> None:
    assert {tier for tier, _ in table} == {LOCAL, LUSTRE, BUCKET}
    for row in table.values():
        assert row.as_of >= date(2020, 1, 1)
        assert row.label or row.read_gb_s is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("tier,key\n", "its columns are tier, key"),
        ("local,a,fast,vendor,2026-01-01,somewhere", "line 2: read_gb_s"),
        ("tape,a,1,vendor,2026-01-01,somewhere", "line 2: tier"),
        ("local,a,1,vendor,2026-01-01", "line 2: it has not 6 cells"),
        ("local,a,1,vendor,2026-01-01,somewhere\nlocal,a,2,vendor,2026-01-01,somewhere", "two rows"),
    ],
)
def test_a_damaged_table_names_the_line_and_the_column(text: str, fault: str) -> None:
    header = "" if text.startswith("tier") else "tier,key,read_gb_s,basis,as_of,source\n"
    with pytest.raises(DataError, match=fault):
        rates.parsed(header + text, name="rates.csv")

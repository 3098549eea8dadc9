"""docs/devices.md names the machine types whose NVLink domain spans machines, and cloudrec refuses these."""

from __future__ import annotations

from pathlib import Path

from cloudrec.providers.aws import offers as aws
from cloudrec.providers.azure import offers as azure
from cloudrec.providers.gcp import offers as gcp

PAGE = Path(__file__).parents[3] / "docs" / "devices.md"


def test_no_type_that_needs_dra_is_created_and_the_page_names_each() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for cloud in (aws, azure, gcp):
        spanning = {name: row for name, row in cloud.TABLE.items() if (row.nvlink_domain or 0) > row.gpus}
        assert spanning
        for name, row in spanning.items():
            assert row.refused, name
            assert f"`{name}`" in text, name

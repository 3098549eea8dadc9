"""What a dataset costs on its way to a cluster depends on the cloud that it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cloudrec.app.context import AppContext
from cloudrec.app.planning.traffic import traffic_to
from cloudrec.home import Home

if TYPE_CHECKING:
    from pathlib import Path


# The published prices of the first terabytes that leave each cloud for the internet.
@pytest.mark.parametrize(
    ("uri", "provider", "usd"),
    [
        ("s3://bucket/data", "gcp", 0.09),
        ("s3://bucket/data", "azure", 0.09),
        ("gs://bucket/data", "aws", 0.12),
        ("abfs://data@account.dfs.core.windows.net/folder", "gcp", 0.087),
        ("data/prepared", "aws", 0.0),
        ("file:///data", "azure", 0.0),
        ("s3://bucket/data", "aws", None),
        ("gs://bucket/data", "gcp", None),
        ("", "aws", None),
    ],
)
def test_a_dataset_is_paid_for_where_it_leaves_another_cloud(
    uri: str, provider: str, usd: float | None, tmp_path: Path
) -> None:
    found = traffic_to(AppContext(home=Home(root=tmp_path), environment={}), uri, provider)
    assert found.usd == usd
    assert bool(found.basis) == (usd is not None)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_price_of_another_service_with_the_api_of_s3_is_unknown(variable: str, tmp_path: Path) -> None:
    app = AppContext(home=Home(root=tmp_path), environment={variable: "https://minio.example.com"})
    assert traffic_to(app, "s3://bucket/data", "gcp").usd is None

"""Amazon Web Services: EKS, its network, its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.base.protocol import Needs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.home import Home
    from cloudrec.providers.base.protocol import Provider

__all__ = ["NEEDS", "create"]

NEEDS = Needs(
    extra="aws",
    modules=(
        "boto3",
        "botocore",
        "fsspec",
        "kubernetes.client",
        "kubernetes.config",
        "s3fs",
    ),
)


def create(home: Home, environment: Mapping[str, str]) -> Provider:
    """Return the provider; `environment` holds the credentials' variables, as boto3 knows them."""
    from cloudrec.providers.aws.provider import AwsProvider  # noqa: PLC0415 - NEEDS must be known without the SDK

    return AwsProvider(home, environment)

"""Amazon Web Services: EKS, its network, its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.aws.provider import AwsProvider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.home import Home
    from cloudrec.provider import Provider


def create(home: Home, environment: Mapping[str, str]) -> Provider:
    """Return the provider; `environment` holds the credentials' variables, as boto3 knows them."""
    return AwsProvider(home, environment)

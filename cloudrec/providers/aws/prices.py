"""The table of AWS's prices in this package."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from cloudrec.providers.base.prices import table_of

if TYPE_CHECKING:
    from cloudrec.providers.base.prices import Prices


@cache
def shipped() -> Prices:
    """Return the table in this package: instance types and services of us-east-1."""
    return table_of(__package__)

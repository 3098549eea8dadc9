"""The rules for names and labels that all services share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cloudrec_sandbox.gcp.api.errors import GcpError

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_NAME = 63
_MOST_LABELS = 64
_LONGEST_LABEL = 63
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]*")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]*")


def is_name(value: str, most: int = LONGEST_NAME) -> bool:
    """Return whether a name is a letter, then letters, digits and dashes, without a dash at the end."""
    return len(value) <= most and _NAME.fullmatch(value) is not None


def name(value: str | None, field: str, most: int = LONGEST_NAME) -> str:
    """Return the name itself; GcpError for one that Compute refuses."""
    if not value or not is_name(value, most):
        pattern = f"(?:[a-z](?:[-a-z0-9]{{0,{most - 2}}}[a-z0-9])?)"
        raise GcpError(
            "INVALID_ARGUMENT",
            f"Invalid value for field '{field}': '{value or ''}'. Must be a match of regex '{pattern}'",
        )
    return value


def labels(values: Mapping[str, str], field: str) -> None:
    """Raise GcpError for labels that Google refuses."""
    if len(values) > _MOST_LABELS:
        raise GcpError(
            "INVALID_ARGUMENT",
            f"Invalid value for field '{field}': '{len(values)}'. Resource has too many labels. The maximum"
            f" is {_MOST_LABELS}.",
        )
    for key, value in values.items():
        fits = (
            _LABEL_KEY.fullmatch(key)
            and _LABEL_VALUE.fullmatch(value)
            and max(len(key), len(value)) <= _LONGEST_LABEL
        )
        if not fits:
            raise GcpError(
                "INVALID_ARGUMENT",
                f"Invalid value for field '{field}': '{key}={value}'. Label keys and values must be at most"
                f" {_LONGEST_LABEL} characters of lowercase letters, digits, underscores and dashes; a key"
                " starts with a letter.",
            )

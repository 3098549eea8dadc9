"""The key `cluster.access`."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cloudrec.spec.models import ClusterSpec


@pytest.mark.parametrize(
    ("given", "kept", "blocks"),
    [
        ("auto", "auto", ()),
        ("private", "private", ()),
        ("203.0.113.7", "203.0.113.7/32", ("203.0.113.7/32",)),
        (["198.51.100.0/24", "auto"], "auto,198.51.100.0/24", ("198.51.100.0/24",)),
        (
            " 203.0.113.7 ,198.51.100.0/24, 203.0.113.7/32",
            "198.51.100.0/24,203.0.113.7/32",
            ("198.51.100.0/24", "203.0.113.7/32"),
        ),
    ],
)
def test_addresses_become_sorted_blocks(given: object, kept: str, blocks: tuple[str, ...]) -> None:
    cluster = ClusterSpec.model_validate({"access": given})
    assert (cluster.access, cluster.access_blocks) == (kept, blocks)
    assert cluster.is_private is (kept == "private")
    assert ClusterSpec.model_validate(cluster.model_dump(mode="json")) == cluster


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "it is empty"),
        ("private,auto", "private excludes all other values"),
        ("me", "it is no IPv4 address or block"),
        ("203.0.113.7,me", "me is no IPv4 address or block"),
        ("10.0.0.0/99", "it has no valid prefix length"),
        ("10.0.0.1/8", "has host bits set"),
        ("0.0.0.0/0", "wider than a /8"),
        ("2001:db8::/32", "it is no IPv4 address or block"),
    ],
)
def test_a_wrong_access_is_refused(given: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        ClusterSpec(access=given)

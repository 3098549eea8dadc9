"""Bounds of requested values from every source; stored specs have none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cloudrec.errors import SpecError
from cloudrec.spec.load import Flags, load, scalar
from cloudrec.spec.models import ClusterSpec

TTL = r"lives at least 5 minutes and at most 365 days"
NO_TTL = r"is no duration such as 90m, 8h or 2d"
BUDGET = r"a budget is more than 0 and at most 10,000,000 USD"
OWNER = r"an owner is a tag on every cloud: at most 63 of"
WRONG = [
    ("ttl", "0.0000001s", TTL),
    ("ttl", "299s", TTL),
    ("ttl", "366d", TTL),
    ("ttl", "99999999999999d", TTL),
    ("ttl", "0s", NO_TTL),
    ("ttl", "0", NO_TTL),
    ("ttl", "-5m", NO_TTL),
    ("ttl", "nan", NO_TTL),
    ("ttl", "inf", NO_TTL),
    ("budget_usd", ".nan", BUDGET),
    ("budget_usd", ".inf", BUDGET),
    ("budget_usd", "1.0e+308", BUDGET),
    ("budget_usd", "10000001", BUDGET),
    ("budget_usd", "-1", BUDGET),
    ("budget_usd", "0", BUDGET),
    ("owner", "x" * 64, OWNER),
    ("owner", "</script>", OWNER),
    ("owner", "jane@example.com", OWNER),
    ("owner", "\N{GRINNING FACE}", OWNER),
    ("owner", "-jane", OWNER),
    ("kubernetes_version", "../../x", "is no version of Kubernetes"),
    ("kubernetes_version", "latest", "is no version of Kubernetes"),
    ("expires", "soon", "is no time"),
    ("expires", "2026-12-01T18:00:00", "has no time zone"),
]
RIGHT = [
    ("ttl", "5m"),
    ("ttl", "365d"),
    ("budget_usd", "0.01"),
    ("budget_usd", "10000000"),
    ("owner", "Jane.Doe_2-x"),
    ("owner", "x" * 63),
    ("owner", "5"),
    ("kubernetes_version", "1.34"),
    ("kubernetes_version", "1.30"),
    ("kubernetes_version", "1.35.8-gke.1225000"),
    ("expires", "2026-12-01T18:00:00Z"),
    ("expires", "2026-12-01T18:00:00+02:00"),
]


def by_file(folder: Path, key: str, text: str) -> ClusterSpec:
    value = text if key != "budget_usd" else yaml.safe_load(text)
    (folder / "cloudrec.yaml").write_text(yaml.safe_dump({"cluster": {key: value}}), encoding="utf-8")
    return load(None, environment={}, flags={}, folder=folder).spec.cluster


def by_variable(folder: Path, key: str, text: str) -> ClusterSpec:
    environment = {f"CLOUDREC_CLUSTER_{key.upper()}": text}
    return load(None, environment=environment, flags={}, folder=folder).spec.cluster


def by_set(folder: Path, key: str, text: str) -> ClusterSpec:
    flags: Flags = {("cluster", key): (f"--set cluster.{key}", scalar(text, ("cluster", key)))}
    return load(None, environment={}, flags=flags, folder=folder).spec.cluster


WAYS = [by_file, by_variable, by_set]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("key", "text", "says"), WRONG)
def test_a_value_out_of_bounds_is_refused_with_the_limit_and_a_remedy(
    tmp_path: Path, way: Callable[[Path, str, str], ClusterSpec], key: str, text: str, says: str
) -> None:
    with pytest.raises(SpecError, match=rf"cluster\.{key} is .*{says}") as caught:
        way(tmp_path, key, text)
    assert caught.value.remedy


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("key", "text"), RIGHT)
def test_a_value_within_bounds_is_accepted(
    tmp_path: Path, way: Callable[[Path, str, str], ClusterSpec], key: str, text: str
) -> None:
    value = getattr(way(tmp_path, key, text), key)
    assert value == (float(text) if key == "budget_usd" else text)


def test_a_stored_spec_is_read_without_bounds() -> None:
    stored = {
        "name": "old",
        "provider": "aws",
        "owner": "jane@example.com",
        "ttl": "30s",
        "budget_usd": 20_000_000.0,
        "expires": "2020-01-01T00:00:00Z",
        "kubernetes_version": "v1.31",
    }
    found = ClusterSpec.model_validate(stored)
    assert {key: getattr(found, key) for key in stored} == stored

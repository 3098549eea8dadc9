"""The zones of a cluster, in accounts where the letters mean other zones."""

from __future__ import annotations

from typing import Any

import pytest

from cloudrec.errors import SpecError
from cloudrec.providers.aws import zones
from cloudrec.spec.models import ClusterSpec


class Paginator:
    def __init__(self, page: dict[str, Any]) -> None:
        self.page = page

    def paginate(self, **_: object) -> list[dict[str, Any]]:
        return [self.page]


class Account:
    """EC2 of one account: the zone id of each letter, and the letters that offer the type."""

    region = "us-east-1"

    def __init__(self, ids: dict[str, str], offered: str) -> None:
        self.ids, self.offered = ids, offered
        self.ec2 = self

    def get_paginator(self, name: str) -> Paginator:
        offers = [{"InstanceType": "p5.48xlarge", "Location": f"us-east-1{each}"} for each in self.offered]
        return Paginator({"describe_vpcs": {}}.get(name, {"InstanceTypeOfferings": offers}))

    def describe_availability_zones(self, **_: object) -> dict[str, Any]:
        rows = [{"ZoneName": f"us-east-1{name}", "ZoneId": zone} for name, zone in self.ids.items()]
        return {"AvailabilityZones": rows}

    def read(self, call: Any, **given: object) -> Any:
        return call(**given)

    def rows(self, call: Any, part: Any, **given: object) -> list[Any]:
        return [row for page in call(**given) for row in part(page) or ()]


def chosen(account: Account, *named: str) -> zones.AwsZones:
    cluster = ClusterSpec(name="t", provider="aws", zones=named)
    return zones.choose(account, cluster, ["p5.48xlarge"])  # type: ignore[arg-type]  # as far as it is used


def test_the_zone_without_eks_is_avoided_whatever_its_letter() -> None:
    shuffled = Account({"a": "use1-az3", "b": "use1-az6", "c": "use1-az1", "d": "use1-az2"}, offered="ac")
    assert chosen(shuffled) == zones.AwsZones(gpu=("us-east-1c",), all=("us-east-1b", "us-east-1c"))


def test_a_type_that_only_a_zone_without_eks_offers_is_refused() -> None:
    account = Account({"a": "use1-az3", "b": "use1-az6"}, offered="a")
    with pytest.raises(SpecError, match=r"has p5\.48xlarge only in us-east-1a, where EKS has no clusters"):
        chosen(account)


def test_a_named_zone_without_eks_is_refused_with_its_id() -> None:
    account = Account({"a": "use1-az3", "b": "use1-az6"}, offered="ab")
    with pytest.raises(SpecError, match="'us-east-1a', which is zone use1-az3, where EKS has no clusters"):
        chosen(account, "us-east-1a")
    assert chosen(account, "us-east-1b").gpu == ("us-east-1b",)

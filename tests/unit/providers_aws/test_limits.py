"""The quota of each kind of node."""

from __future__ import annotations

import pytest

from cloudrec.providers.aws.quotas import quota_of


@pytest.mark.parametrize(
    ("instance_type", "capacity", "code"),
    [
        ("p4d.24xlarge", "on-demand", "L-417A185B"),
        ("p4de.24xlarge", "spot", "L-7212CCBC"),
        ("p5.48xlarge", "on-demand", "L-417A185B"),
        ("p5.48xlarge", "spot", "L-C4BD4855"),
        ("p5en.48xlarge", "spot", "L-C4BD4855"),
        ("p6-b200.48xlarge", "on-demand", "L-417A185B"),
        ("p6-b300.48xlarge", "spot", ""),  # AWS lists no quota of it
        ("p9.48xlarge", "spot", ""),
        ("p3.16xlarge", "spot", "L-7212CCBC"),
        ("g5.xlarge", "on-demand", "L-DB2E81BA"),
        ("g6.xlarge", "spot", "L-3819A6DF"),
        ("m6i.large", "on-demand", "L-1216C47A"),
        ("c7i.large", "spot", "L-34B43A08"),
        ("p5.48xlarge", "capacity-block", ""),
        ("u-6tb1.metal", "on-demand", ""),
    ],
)
def test_vcpus_are_counted_by_family_and_capacity_type(instance_type: str, capacity: str, code: str) -> None:
    assert quota_of(instance_type, capacity) == code

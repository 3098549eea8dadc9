"""`up` and `down` through a proxy that fails some requests; a user repeats the command, and nothing is left.

The seed is printed, and CLOUDREC_FAULTS_SEED repeats a run.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.e2e.support_wire import WIRES, account, account_with_pods
from tests.tallies import Tally

_ROUNDS = 20


@pytest.mark.parametrize("provider", sorted(WIRES))
def test_a_faulty_wire_to_a_cloud_leaves_nothing_twice_and_nothing_behind(
    provider: str, tmp_path: Path
) -> None:
    with account(provider, tmp_path) as cloud:
        print(cloud.round(seed=1, percent=5))
        assert cloud.struck > 0


def test_a_faulty_wire_to_the_cluster_of_a_cloud_leaves_nothing_twice_and_nothing_behind(
    tmp_path: Path,
) -> None:
    with account_with_pods("aws", tmp_path) as cloud:
        print(cloud.round(seed=1, percent=5))
        assert cloud.struck > 0


@pytest.mark.soak
@pytest.mark.parametrize("provider", sorted(WIRES))
def test_many_faulty_wires_to_a_cloud_leave_nothing_twice_and_nothing_behind(
    provider: str, tmp_path: Path, tally: Tally
) -> None:
    with account(provider, tmp_path) as cloud:
        for _ in range(_ROUNDS):
            print(cloud.round(seed=secrets.randbelow(1_000_000), percent=5))
        assert cloud.struck > 0
        tally(f"{provider}: {_ROUNDS} rounds, {cloud.struck} of {cloud.requests} requests failed")


@pytest.mark.soak
@pytest.mark.parametrize("provider", ["aws", "azure", "gcp"])
def test_many_faulty_wires_to_a_cluster_leave_nothing_twice_and_nothing_behind(
    provider: str, tmp_path: Path, tally: Tally
) -> None:
    with account_with_pods(provider, tmp_path) as cloud:
        for _ in range(_ROUNDS):
            print(cloud.round(seed=secrets.randbelow(1_000_000), percent=5))
        assert cloud.struck > 0
        tally(f"cluster of {provider}: {_ROUNDS} rounds, {cloud.struck} of {cloud.requests} requests failed")

"""No GPU node outlives an end by more than a round, whatever clocks, keepers, calls and commands do."""

from __future__ import annotations

import pytest

from cloudrec.keeper.guard import GuardRecord
from cloudrec.kubernetes.client.client import Kube
from tests.conformance.support_clouds import Site
from tests.contract.kubernetes_adopted.support_days import Days
from tests.contract.kubernetes_adopted.test_guard import NAMESPACE, client
from tests.tallies import Tally

__all__ = ["client"]


@pytest.mark.parametrize(
    ("days", "seed"),
    [
        pytest.param(50, 1, id="50", marks=pytest.mark.slow),
        pytest.param(1000, 2, id="1000", marks=[pytest.mark.soak, pytest.mark.timeout(5400)]),
    ],
)
def test_no_gpu_node_outlives_an_end_by_more_than_a_round(
    site: Site, client: Kube, days: int, seed: int, tally: Tally
) -> None:
    world = Days(site.cloud, client, NAMESPACE, seed)
    world.pass_days(days)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(world.counts.items()))
    tally(f"{days} virtual days, seed {seed}: {world.counts['minutes past an end']} minutes past; {counts}")
    assert world.late == []
    assert (
        min(world.counts[each] for each in ("by the alarm", "by the keeper", "kills", "outages")) > days / 4
    )
    assert min(10 * world.counts["shortened"], world.counts["renewed"], world.counts["skews"]) > days / 4


@pytest.mark.slow
def test_a_guard_that_halts_only_once_is_found(
    site: Site, client: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardRecord, "has_just_scaled", lambda self, *_: self.halted)
    world = Days(site.cloud, client, NAMESPACE, 1)
    world.pass_days(10)
    assert world.counts["minutes past an end"] > 0

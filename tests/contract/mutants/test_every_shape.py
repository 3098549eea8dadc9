"""Changed requests for a machine of each shape: at least 95 % of what a vendor refuses is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec_sandbox.kubernetes.joined.connection import Connection
from tests.contract.kubernetes.support import api_server
from tests.contract.mutants import clouds, pods
from tests.contract.mutants.sending import Counts
from tests.standins.control_plane import control_plane, why_no_control_plane

LEAST_PERCENT = 95.0


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cloud", clouds.NAMES)
def test_a_stand_in_refuses_what_its_vendor_refuses(cloud: str, tmp_path: Path) -> None:
    counts = Counts()
    with clouds.requests(cloud, tmp_path) as requests:
        for machine in clouds.shapes(cloud):
            counts.results += requests.results(machine)
    print(cloud, counts.row())
    assert counts.share >= LEAST_PERCENT, [str(each) for each in counts.holes]
    assert len(counts.too_strict) <= len(counts.results) / 100, [str(each) for each in counts.too_strict]


@pytest.mark.parametrize("family", pods.FABRICS)
def test_the_kubernetes_stand_in_refuses_what_a_real_api_server_refuses(family: str) -> None:
    with api_server() as server:
        connection = Connection(Path(server.kubeconfig))
        counts = pods.compare(connection, family)
        connection.close()
    assert counts.share >= LEAST_PERCENT, [str(each) for each in counts.holes]


def test_the_recorded_answers_are_those_of_a_real_api_server() -> None:
    if why := why_no_control_plane():
        pytest.skip(why)
    with control_plane() as kubeconfig:
        connection = Connection(kubeconfig)
        answers = pods.record(connection)
        connection.close()
    assert answers == pods.recorded()

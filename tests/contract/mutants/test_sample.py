"""A sample of changed requests: the stand-ins refuse what the vendors refuse, and accept what they accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec_sandbox.kubernetes.joined.connection import Connection
from tests.contract.kubernetes.support import api_server
from tests.contract.mutants import clouds, pods
from tests.contract.mutants.sending import Counts
from tests.contract.mutants.verdicts import table

# The machine, and which of its mutants are sent: each n-th.
SAMPLES = {
    "aws": ("g6e.24xlarge", 8),
    "azure": ("Standard_ND96isr_H100_v5", 3),
    "gcp": ("a3-megagpu-8g", 4),
}
TABLES = ("aws-template", "aws-nodegroup", "azure-pool", "gcp-pool", "pods")


@pytest.mark.parametrize("cloud", clouds.NAMES)
def test_changed_requests_for_machines_get_the_vendors_answer(cloud: str, tmp_path: Path) -> None:
    machine, every = SAMPLES[cloud]
    with clouds.requests(cloud, tmp_path) as requests:
        counts = Counts(results=list(requests.results(machine, every=every)))
    assert counts.refusable >= 10
    assert [str(each) for each in (*counts.holes, *counts.too_strict)] == []


def test_changed_jobs_get_the_answer_of_a_real_api_server() -> None:
    with api_server() as server:
        connection = Connection(Path(server.kubeconfig))
        counts = pods.compare(connection, "aws-p5")
        connection.close()
    assert counts.refusable >= 300
    assert [str(each) for each in counts.holes] == []
    assert len(counts.too_strict) <= 3


@pytest.mark.parametrize("name", TABLES)
def test_each_documented_rule_names_its_source(name: str) -> None:
    assert all(rule.source in table(name).sources for rule in table(name).rules)

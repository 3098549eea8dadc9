"""Each identity of a cluster on Google Cloud holds what its flows use, and nothing else.

What an identity holds is read from the roles of infra/gcp; what its flows use is what the stand-in
recorded of its calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudrec.providers.gcp.identity.identity import SHARED_ROLES
from cloudrec_sandbox.gcp.services.iam.roles import PREDEFINED
from tests.contract.gcp.support import fresh
from tests.contract.gcp.support_flows import HELD, grants, run
from tests.contract.gcp.support_identities import Estate
from tests.contract.gcp.test_deployer_role import unlimited
from tests.contract.support_least import Found, Grant, differences, unneeded
from tests.sandbox.gcp.support import Gcp as Cloud
from tests.tallies import Tally

POD = "roles/storage.objectUser"
# What Google's role has beside that: the buckets' CSI driver asks for the role as a whole.
_FUSE = "https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup"
UNUSED = dict.fromkeys(
    ("storage.folders.*", "storage.multipartUploads.*", "storage.objects.move", "storage.objects.update"),
    _FUSE,
)
_LEAST = (
    "https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster#use_least_privilege_sa"
)
_STREAMING = "https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming"
# Google's roles of a node, each with the page that requires it: no kubelet and no agent of Google runs here.
NODES = {
    "roles/artifactregistry.reader": _LEAST,
    "roles/logging.logWriter": _LEAST,
    "roles/monitoring.metricWriter": _LEAST,
    "roles/monitoring.viewer": _LEAST,
    "roles/serviceusage.serviceUsageConsumer": _STREAMING,
    "roles/stackdriver.resourceMetadata.writer": _LEAST,
}


@pytest.fixture(scope="module")
def estate(process: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    """A deployer's cluster whose end depends on the stand-in's clock alone."""
    fresh(process)
    process.control(real_times=False)
    yield Estate(process, tmp_path_factory.mktemp("estate"))
    process.control(enforce_iam=False, real_times=True)


@pytest.mark.parametrize("name", HELD)
def test_an_identity_holds_what_its_flows_use(estate: Estate, tmp_path: Path, name: str) -> None:
    found = run(estate, name, tmp_path)
    assert found.said == ""
    assert found.refused == frozenset()
    assert differences({each.action for each in grants(name)}, found.used, {}) == []


def test_a_run_has_googles_smallest_role_that_writes_and_deletes(estate: Estate, tmp_path: Path) -> None:
    found = run(estate, "pod", tmp_path)
    assert (found.said, found.refused) == ("", frozenset())
    with unlimited(estate.cloud):
        bucket = estate.site.layout().bucket
        policy = estate.cloud.rest("GET", f"/storage/v1/b/{bucket}/iam?optionsRequestedPolicyVersion=3")[1]
    of_pods = [row for row in policy["bindings"] if any("principal:" in who for who in row["members"])]
    assert {row["role"] for row in of_pods} == {POD}
    granted = set(PREDEFINED[POD])
    assert differences(granted, found.used, UNUSED) == []


def test_each_role_of_the_nodes_is_one_that_google_requires() -> None:
    assert set(SHARED_ROLES) == NODES.keys()


@pytest.mark.parametrize("name", [*HELD, "pod"])
def test_each_permission_of_an_identity_is_needed(
    estate: Estate, tmp_path: Path, name: str, tally: Tally
) -> None:
    def without(grant: Grant) -> Found:
        return run(estate, name, tmp_path, without=grant)

    held = grants(name)
    assert unneeded(held, without) == []
    tally(f"each of {len(held)} permissions of Google Cloud's identity {name} is needed")

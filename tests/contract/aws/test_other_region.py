"""Runs and keepers of a cluster in another region use the bucket of the first one with its key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloudrec import app
from cloudrec.providers.aws.identity import policies
from cloudrec.providers.aws.storage import mounts
from cloudrec_contract.layout import run_uri, turns_uri
from cloudrec_contract.objectstore.base import StoreOptions, UploadFile, crc32_of
from cloudrec_contract.objectstore.errors import AccessDeniedError
from cloudrec_contract.objectstore.open import open_store
from tests.contract.aws.support import Site
from tests.contract.aws.support_flows import credentials
from tests.contract.aws.support_identities import keys_of
from tests.sandbox.aws.support import Aws

EAST, WEST = "us-east-1", "us-west-2"
ACCOUNT = "123456789012"
BUCKET = f"cloudrec-east-{ACCOUNT}-{EAST}"


@pytest.fixture
def west(aws: Aws, tmp_path: Path) -> Site:
    """A managed cluster in the west that uses the storage of one in the east."""
    more = {"managed": True, "instance_types": ("p4d.24xlarge",)}
    Site(aws, tmp_path, name="east", region=EAST, settings={"prefix": "team"}, **more).up()
    site = Site(aws, tmp_path, name="west", region=WEST, storage_of="east", **more)
    site.up()
    site.cluster = app.choose(site.application, provider_name="aws", cluster_name="west")
    return site


@contextmanager
def acting(west: Site, role: str) -> Iterator[None]:
    """Act with a role of the cluster in the west, as its pods do: with the region of that cluster."""
    row = west.aws.client("iam").get_role(RoleName=f"cloudrec-west-{WEST}-{role}")["Role"]
    keys = keys_of(west.aws, row)
    west.aws.control(enforce_iam=True)
    try:
        with credentials({**west.aws.env, **keys, "AWS_REGION": WEST, "AWS_DEFAULT_REGION": WEST}):
            yield
    finally:
        west.aws.control(enforce_iam=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_runs_and_keepers_use_the_bucket_in_its_own_region(west: Site, tmp_path: Path) -> None:
    check_names(west)
    storage = west.provider.data_places(west.cluster).storage
    assert storage == f"s3://{BUCKET}/team"
    file = tmp_path / "part"
    file.write_bytes(b"x" * (17 * 2**20))
    large = UploadFile(path=file, size=file.stat().st_size, crc32=crc32_of(file))
    before = len(west.aws.calls())
    with acting(west, "pod"):
        run = open_store(run_uri(storage, "r"), StoreOptions())
        run.check()
        run.put("data", b"data")
        run.put("pods/p/rank-0.log", b"log")
        run.upload("large", large, lambda _: None)
        with run.write("stream") as target:
            target.write(b"y" * (6 * 2**20))
        assert (run.read("data"), run.read("stream", 0, 2)) == (b"data", b"yy")
        assert run.children() == {"data": 4, "large": large.size, "stream": 6 * 2**20, "pods": -1}
        run.remove(["stream"])
    with acting(west, "guard"):
        turns = open_store(turns_uri(storage, "r"), StoreOptions())
        turns.create("00000001.json", b"{}")
        assert (turns.children(), turns.read("00000001.json")) == ({"00000001.json": 2}, b"{}")
        with pytest.raises(AccessDeniedError):
            turns.remove(["00000001.json"])
        run = open_store(run_uri(storage, "r"), StoreOptions())
        assert run.sizes("pods/") == {"pods/p/rank-0.log": 3}
        assert open_store(run_uri(storage, "waiting"), StoreOptions()).sizes("pods/") == {}
        for forbidden in (run.children, lambda: run.read("pods/p/rank-0.log"), lambda: run.read("data")):
            with pytest.raises(AccessDeniedError):
                forbidden()
    statuses = [call["status"] for call in west.aws.calls(before) if call["service"] == "s3"]
    assert statuses.count(301) == 4  # each client learns the region once


def check_names(west: Site) -> None:
    """The policies, the mount and the tiers name the bucket of the first cluster, and none of this one."""
    layout = west.provider.layout(west.cluster)
    granted = json.dumps([policies.pod_policy(layout), policies.guard_policy(layout)])
    assert f"arn:aws:s3:::{BUCKET}/team/turns/*" in granted
    assert f"s3.{WEST}.amazonaws.com" not in granted
    assert "alias/cloudrec-west" not in granted
    bucket, *others = mounts.volumes(layout, west.provider.account(WEST), cache_gib=1)
    assert (bucket["handle"], bucket["mount_options"][1:]) == (BUCKET, [f"region {EAST}", "prefix team/"])
    assert others == []
    lustre = next(tier for tier in west.provider.data_places(west.cluster).tiers if tier.name == "lustre")
    assert "without --storage-of" in lustre.remedy
    found = {seen.key: seen for seen in west.provider.search("west", locations=[WEST])}
    assert "bucket/west" not in found
    assert not found["key/west"].holds_data  # it encrypts secrets and logs alone

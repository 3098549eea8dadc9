"""The keeper of a managed cluster may create and read the turns of runs in the bucket, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec.engine.plan import PlanStep
from cloudrec.providers.gcp.storage import storage
from cloudrec_contract.layout import run_uri, turns_uri
from cloudrec_contract.objectstore.base import StoreOptions
from cloudrec_contract.objectstore.errors import AccessDeniedError
from cloudrec_contract.objectstore.open import open_store
from cloudrec_contract.objectstore.retries import Patience
from tests.contract.gcp.support import WHOLE, Site
from tests.contract.gcp.test_deployer_role import ME, OWNER, replace_policy
from tests.sandbox.gcp.support import ZONE
from tests.sandbox.gcp.support import Gcp as Cloud

KEEPER = "bucket-binding/t-guard"


def site_of(cloud: Cloud, folder: Path, *, managed: bool) -> Site:
    given: dict[str, Any] = {"zones": (ZONE,), "settings": {"prefix": "team"}, "managed": managed}
    return Site(cloud, folder, parts=(*WHOLE, storage), **given)


def act_as_keeper(cloud: Cloud, bucket: str) -> None:
    """Give the caller the keeper's grants in the bucket's policy alone, and begin to check permissions."""
    path = f"/storage/v1/b/{bucket}/iam"
    bindings = cloud.rest("GET", f"{path}?optionsRequestedPolicyVersion=3")[1]["bindings"]
    keeper = [row for row in bindings if any(who.endswith("/sa/cloudrec-guard") for who in row["members"])]
    assert {row["role"] for row in keeper} == {"roles/storage.objectCreator", "roles/storage.objectViewer"}
    mine = [{**row, "members": [ME]} for row in keeper]
    assert cloud.rest("PUT", path, {"version": 3, "bindings": mine})[0] == 200
    replace_policy(cloud, [{"role": "roles/owner", "members": [OWNER]}])
    cloud.control(enforce_iam=True)


def test_a_keeper_takes_turns_in_the_bucket_and_does_nothing_else_there(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of(cloud, tmp_path, managed=True)
    site.up()
    assert site.planned() == {}
    assert KEEPER in site.found()
    alone = site_of(cloud, tmp_path, managed=False)
    assert alone.planned()[KEEPER].step is PlanStep.DELETE
    bucket, where = site.layout().bucket, site.layout().storage
    data = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=team/runs/r/data"
    assert cloud.rest("POST", data, {})[0] == 200
    log = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=team/runs/r/pods/p/rank-0.log"
    assert cloud.rest("POST", log, {})[0] == 200
    before = cloud.rest("GET", f"/storage/v1/b/{bucket}/iam?optionsRequestedPolicyVersion=3")[1]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", cloud.endpoint)
    act_as_keeper(cloud, bucket)
    try:
        turns, run = (
            open_store(uri, StoreOptions(patience=Patience(attempts=1)))
            for uri in (turns_uri(where, "r"), run_uri(where, "r"))
        )
        for store in (turns, run):
            # gcsfs has no account at another endpoint than Google's; a pod gets its token from GKE.
            store._files.credentials.credentials = cloud.credentials  # type: ignore[attr-defined]
        turns.create("00000001.json", b"{}")
        assert (turns.children(), turns.read("00000001.json")) == ({"00000001.json": 2}, b"{}")
        assert run.sizes("pods/") == {"pods/p/rank-0.log": 2}
        assert run.sizes("waiting/") == {}
        for forbidden in (
            lambda: turns.put("00000001.json", b"{ }"),
            lambda: turns.remove(["00000001.json"]),
            lambda: run.read("data"),
            lambda: run.read("pods/p/rank-0.log"),
            lambda: run.create("other", b""),
        ):
            with pytest.raises(AccessDeniedError):
                forbidden()
    finally:
        cloud.control(enforce_iam=False)
    policy = {"version": 3, "bindings": before["bindings"]}
    assert cloud.rest("PUT", f"/storage/v1/b/{bucket}/iam", policy)[0] == 200
    site.down()
    assert not site.found()

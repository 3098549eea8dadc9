"""What each identity of a cluster on Google Cloud does, and what Google Cloud recorded of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.api_core.exceptions import GoogleAPICallError

from cloudrec.errors import CloudrecError
from cloudrec.keeper.guard import halting, moving, sizing
from cloudrec.providers.gcp.nodes import end_label, scale_to_zero
from cloudrec_contract.objectstore.base import StoreOptions, UploadFile, crc32_of
from cloudrec_contract.objectstore.errors import ObjectStoreError
from cloudrec_contract.objectstore.open import open_store
from cloudrec_contract.objectstore.retries import Patience
from tests.contract.gcp.support_identities import Estate
from tests.contract.gcp.test_deployer_role import CUSTOM, END, ME, unlimited
from tests.contract.gcp.test_end_schedule import machines, pass_end
from tests.contract.support_least import Found, Grant, reports
from tests.sandbox.gcp.support import PROJECT, REGION

ROLES = f"/v1/projects/{PROJECT}/roles"
# The custom roles that each identity has; the end's account has also the guard's role on its cluster.
HELD = {"guard": ("guard",), "end": ("end", "guard")}
# What a run uses of Google's role; the role is the smallest one of Google's that can delete objects.
OF_POD = tuple(f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list"))
PRINCIPALS = {"guard": ME.partition(":")[2], "pod": ME.partition(":")[2], "end": END}
_PART = 2**18 * 4  # a part of an upload
said_by = partial(reports, (CloudrecError, GoogleAPICallError, ObjectStoreError))


def guard(estate: Estate, folder: Path) -> str:
    """What the keeper and the guard ask of GKE in their rounds, with the functions that they call."""
    environment = {
        **estate.cloud.env,
        "GOOGLE_CLOUD_PROJECT": PROJECT,
        "GOOGLE_CLOUD_REGION": REGION,
        scale_to_zero.CLUSTER: estate.cluster,
    }
    cluster = estate.site.cluster
    sizer, mover = sizing(folder, environment)(cluster), moving(folder, environment)(cluster)
    assert sizer is not None
    assert mover is not None
    later = cluster.model_copy(update={"expires": _in(estate, days=9)})
    with unlimited(estate.cloud):
        (pool,) = [row.name for row in _gpu_pools(estate)]
    estate.become("guard")

    def settle() -> None:
        estate.cloud.advance(1800)

    return said_by(
        lambda: "; ".join(each.problem for each in sizer.pools(cluster) if each.problem),
        lambda: sizer.resize(cluster, pool, 2),
        settle,
        lambda: mover.move_end(later, [pool]),
        settle,
        lambda: "; ".join(halting(folder, environment)(cluster).left),
    )


def end(estate: Estate, folder: Path) -> str:
    """The job that starts the workflow every minute, and the workflow that ends the cluster."""
    del folder
    cloud = estate.cloud
    with unlimited(cloud):
        end_label.move(estate.site.gcp, estate.site.title, _in(estate, minutes=20), cluster=estate.cluster)
    pass_end(cloud, _in(estate, minutes=20), minutes=10)
    left = machines(cloud, "gpu")
    return f"{left} GPU nodes are left after the end" if left else ""


def _in(estate: Estate, **of_time: float) -> str:
    moment = datetime.fromtimestamp(estate.cloud.control()["virtual_time"], UTC) + timedelta(**of_time)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _gpu_pools(estate: Estate) -> list[Any]:
    pools = estate.cloud.gke.get_cluster(name=estate.cluster).node_pools
    return [row for row in pools if row.name.startswith("gpu")]


def pod(estate: Estate, folder: Path, role: str = "") -> str:
    """What a run does in its bucket, with its own role or another one."""
    with unlimited(estate.cloud):
        bucket = estate.site.layout().bucket
        for name in ("data", "old"):
            place = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=runs/r/{name}"
            assert estate.cloud.rest("POST", place, {})[0] == 200
        take_bucket(estate, bucket, role)
    estate.become("pod")
    file = folder / "part"
    file.write_bytes(b"x" * (_PART + 1))
    upload = UploadFile(path=file, size=file.stat().st_size, crc32=crc32_of(file))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", estate.cloud.endpoint)
        options = StoreOptions(patience=Patience(attempts=1), part_bytes=_PART)
        store: Any = open_store(f"gs://{bucket}/runs/r", options)
        # gcsfs has no account at another endpoint than Google's; a pod gets its token from GKE.
        store._files.credentials.credentials = estate.cloud.credentials

        def stream() -> None:
            with store.write("step-1/large") as target:
                target.write(b"x" * (2 * _PART + 1))

        return said_by(
            store.check,
            lambda: store.children() and "",
            lambda: store.read("data") and "",
            lambda: store.put("step-1/commit.json", b"{}"),
            lambda: store.put("step-1/commit.json", b"{ }"),
            stream,
            lambda: store.upload("step-1/whole", upload, lambda _: None),
            lambda: store.read("step-1/large", 0, 8) and "",
            lambda: store.remove(["old"]),
            store.tidy,
        )


def take_bucket(estate: Estate, bucket: str, role: str = "") -> None:
    """Give the caller the pod's grants in the bucket's policy; with `role` instead of the pod's if given."""
    path = f"/storage/v1/b/{bucket}/iam"
    bindings = estate.cloud.rest("GET", f"{path}?optionsRequestedPolicyVersion=3")[1]["bindings"]
    mine = [
        {**each, "members": [ME], "role": role or each["role"]}
        for each in bindings
        if any(who.startswith("principal:") or who == ME for who in each["members"])
    ]
    assert [each["role"] for each in mine]
    assert estate.cloud.rest("PUT", path, {"version": 3, "bindings": mine})[0] == 200


FLOWS: dict[str, Callable[[Estate, Path], str]] = {
    "guard": guard,
    "end": end,
    "pod": pod,
}


def run(estate: Estate, name: str, folder: Path, *, without: Grant | None = None) -> Found:
    """Run an identity's flows, `without` a permission of a role; afterwards the project is as it was."""
    cloud = estate.cloud
    cloud.ask("POST", "/save", {"name": "before"})
    flow = FLOWS[name]
    try:
        if without is not None and without.source in CUSTOM:
            held = CUSTOM[without.source]["includedPermissions"]
            kept = [each for each in held if each != without.action] or ["compute.zones.list"]
            path = f"{ROLES}/cloudrec{without.source.title()}?updateMask=includedPermissions"
            with unlimited(cloud):
                assert cloud.rest("PATCH", path, {"includedPermissions": kept})[0] == 200
                cloud.advance(600)
        elif without is not None:  # Google's role is replaced by one with what is used of it, but for this
            kept = [each for each in OF_POD if each != without.action]
            role = {"title": "less", "includedPermissions": kept}
            with unlimited(cloud):
                assert cloud.rest("POST", ROLES, {"roleId": "less", "role": role})[0] == 200
                cloud.advance(600)
            flow = partial(pod, role=f"projects/{PROJECT}/roles/less")
        cloud.control(enforce_iam=True, decisions={})
        said = flow(estate, folder)
        noted = cloud.control()["decisions"].get(PRINCIPALS[name], {"used": [], "refused": []})
    finally:
        cloud.ask("POST", "/restore", {"name": "before"})
    return Found(used=frozenset(noted["used"]), refused=frozenset(noted["refused"]), said=said)


def grants(name: str) -> list[Grant]:
    """The permissions of an identity, each with its role; of a run, those that it uses of Google's role."""
    if name == "pod":
        return [Grant(source="roles/storage.objectUser", action=each) for each in OF_POD]
    return [
        Grant(source=role, action=each) for role in HELD[name] for each in CUSTOM[role]["includedPermissions"]
    ]

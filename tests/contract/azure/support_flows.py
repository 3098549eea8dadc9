"""What each identity of a cluster on Azure does, and what Azure recorded of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from cloudrec.errors import CloudrecError
from cloudrec.keeper.guard import halting, moving, sizing
from cloudrec.providers.azure.identity.roles import POWERFUL, ROLES
from cloudrec_contract.objectstore.base import StoreOptions, UploadFile, crc32_of
from cloudrec_contract.objectstore.errors import ObjectStoreError
from cloudrec_contract.objectstore.open import open_store
from cloudrec_contract.objectstore.retries import Patience
from cloudrec_sandbox.azure.services.authorization.roles import BUILT_IN, Role
from tests.contract.azure.support import Site
from tests.contract.azure.support_budget import CLUSTER, gpu_nodes, gpu_pools, kept_end
from tests.contract.azure.test_moved_end import tag
from tests.contract.support_least import Found, Grant, reports
from tests.sandbox.azure.support import Azure

_PART = 5 * 2**20
_TITLES = {guid: title for title, guid in {**ROLES, **POWERFUL}.items()}
_KNOWN = {role.id: role for role in BUILT_IN}
said_by = partial(reports, (CloudrecError, ObjectStoreError, HttpResponseError))


class Life:
    """A cluster with a budget whose time passes by order, and its identities."""

    def __init__(self, azure: Azure, folder: Path) -> None:
        self.azure = azure
        self.site = Site(azure, folder, budget_usd=100.0, zones=["1"], access="auto")
        self.site.up()
        azure.advance(600)  # role assignments have taken effect
        azure.ask("POST", "/save", {"name": "raised"})

    def row(self, suffix: str) -> Any:
        """An identity of the cluster."""
        calls = self.site.sdk.managedidentity.user_assigned_identities
        return calls.get(CLUSTER, f"{CLUSTER}-{suffix}")

    def keys(self, suffix: str) -> dict[str, str]:
        """The environment of an identity, with a secret in place of its pod's token."""
        row = self.row(suffix)
        self.azure.control(clients={row.client_id: {"secret": suffix, "object_id": row.principal_id}})
        return {**self.azure.env, "AZURE_CLIENT_ID": row.client_id, "AZURE_CLIENT_SECRET": suffix}

    def assignments(self, suffix: str) -> dict[Grant, str]:
        """The roles of an identity, each with its scope's last name, and the assignment's id."""
        principal = self.row(suffix).principal_id
        rows = self.site.sdk.authorization.role_assignments.list_for_subscription()
        found = {}
        for row in rows:
            role = str(row.role_definition_id).rpartition("/")[2]
            if row.principal_id == principal:
                found[Grant(action=_TITLES[role], source=str(row.scope).rpartition("/")[2])] = str(row.id)
        return found


def role_of(grant: Grant) -> Role:
    """The definition of a grant's role."""
    return _KNOWN[{**ROLES, **POWERFUL}[grant.action]]


def guard(life: Life, folder: Path) -> str:
    """What the keeper and the guard ask of Azure in their rounds, with the functions that they call."""
    site = life.site
    environment = {**life.keys("guard"), **site.provider.guard(site.cluster).environment}
    (pool,) = [row.name for row in gpu_pools(site)]
    end = datetime.fromisoformat(kept_end(site)) + timedelta(hours=1)
    later = site.cluster.model_copy(update={"expires": f"{end.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"})
    sizer, mover = sizing(folder, environment)(site.cluster), moving(folder, environment)(site.cluster)
    assert sizer is not None
    assert mover is not None
    life.azure.control(enforce_iam=True, decisions={})

    def settle() -> None:
        life.azure.advance(1800)

    return said_by(
        lambda: "; ".join(each.problem for each in sizer.pools(site.cluster) if each.problem),
        lambda: sizer.resize(site.cluster, pool, 2),
        settle,
        lambda: mover.move_end(later, [pool]),
        lambda: "; ".join(halting(folder, environment)(site.cluster).left),
    )


def end(life: Life, folder: Path) -> str:
    """The workflow that reads the end in its tag, which was moved, and deletes the pools of GPU nodes."""
    del folder
    moment = float(life.azure.ask("GET", "")["virtual_time"]) + 1800
    tag(life.site, f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}")
    life.azure.control(enforce_iam=True, decisions={})
    life.azure.advance(2700)
    left = gpu_nodes(life.site)
    return f"{left} GPU nodes are left after the end" if left else ""


def pod(life: Life, folder: Path) -> str:
    """What a run does in its container: it reads data, writes checkpoints, and removes old ones."""
    file = folder / "part"
    file.write_bytes(b"x" * (_PART + 1))
    upload = UploadFile(path=file, size=file.stat().st_size, crc32=crc32_of(file))
    access = life.site.provider.access(life.site.cluster)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in life.keys("pod").items():
            patch.setenv(name, value)
        life.azure.control(enforce_iam=True, decisions={})
        options = StoreOptions(patience=Patience(attempts=1), part_bytes=_PART)
        store = open_store(f"{access.storage}/runs/r", options)

        def stream() -> None:
            with store.write("step-1/large") as target:
                target.write(b"x" * (2 * _PART + 1))

        return said_by(
            store.check,
            lambda: store.put("old", b"1"),
            lambda: store.children() and "",
            lambda: store.read("old") and "",
            stream,
            lambda: store.upload("step-1/whole", upload, lambda _: None),
            lambda: store.read("step-1/large", 0, 8) and "",
            lambda: store.remove(["old"]),
            store.tidy,
        )


def cluster(life: Life, folder: Path) -> str:
    """AKS writes the cluster again, and adds a node, in the name of the control plane's identity."""
    del folder
    clusters = life.site.sdk.containerservice.managed_clusters
    life.azure.control(decisions={})

    def write() -> None:
        clusters.begin_create_or_update(CLUSTER, CLUSTER, clusters.get(CLUSTER, CLUSTER), polling=False)
        life.azure.advance(1800)
        row = clusters.get(CLUSTER, CLUSTER)
        if row.provisioning_state != "Succeeded":
            raise CloudrecError(f"{row.provisioning_state}: {row.status}")

    return said_by(write)


FLOWS: dict[str, Callable[[Life, Path], str]] = {"guard": guard, "end": end, "pod": pod, "cluster": cluster}


def run(life: Life, name: str, folder: Path, *, without: Grant | None = None) -> Found:
    """Run an identity's flows, `without` one of its roles; afterwards the subscription is as it was."""
    principal = life.row(name).principal_id
    try:
        if without is not None:
            id_ = life.assignments(name)[without]
            life.site.sdk.authorization.role_assignments.delete_by_id(id_)
            life.azure.advance(60)
        said = FLOWS[name](life, folder)
        noted = life.azure.ask("GET", "")["decisions"].get(principal.lower(), {"used": [], "refused": []})
    finally:
        life.azure.control(enforce_iam=False)
        life.azure.ask("POST", "/restore", {"name": "raised"})
    return Found(used=frozenset(noted["used"]), refused=frozenset(noted["refused"]), said=said)

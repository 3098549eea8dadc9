"""Without any permission of the deployer's roles, `up` or `down` fails and names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec.providers.gcp import provider
from tests.contract.gcp.support import Site
from tests.contract.gcp.support_audit import APIS
from tests.contract.gcp.test_deployer_role import CUSTOM, later, prepare, unlimited, used
from tests.sandbox.gcp.support import PROJECT, ZONE
from tests.sandbox.gcp.support import Gcp as Cloud
from tests.tallies import Tally

ROLES = ("deployer", "buckets", "binder", "firewalls")
# A sample of the services; `make soak` covers every permission that the life of a cluster needs.
DISABLED = "artifactregistry.googleapis.com"
SOME = (
    "compute.firewalls.delete",
    "compute.networks.create",
    "serviceusage.services.enable",
    "storage.buckets.create",
    "storage.buckets.get",
    "workflows.workflows.create",
    "resourcemanager.projects.setIamPolicy",
)


class Life:
    """The deployer's cluster, and roles that can lack a permission."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self.cloud, self.folder, self.count = cloud, folder, 0
        cloud.control(apis={**APIS, "workflows.googleapis.com": True})
        prepare(cloud, optional=False)
        self.before = set(cloud.state())

    def site(self) -> Site:
        with unlimited(self.cloud):  # as on a new account: an API that `up` has enabled before stays enabled
            self.cloud.control(apis={**APIS, "workflows.googleapis.com": True, DISABLED: False})
        given: dict[str, Any] = {"zones": (ZONE,), "expires": later(self.cloud, 20), "budget_usd": 1e6}
        self.count += 1
        return Site(self.cloud, self.folder / str(self.count), parts=provider.GcpProvider.parts, **given)

    def permit(self, name: str, *, without: str = "") -> None:
        """Set the permissions of a role."""
        kept = [each for each in CUSTOM[name]["includedPermissions"] if each != without]
        kept = kept or ["compute.zones.list"]  # an empty list is no change
        path = f"/v1/projects/{PROJECT}/roles/cloudrec{name.title()}?updateMask=includedPermissions"
        with unlimited(self.cloud):
            assert self.cloud.rest("PATCH", path, {"includedPermissions": kept})[0] == 200
            self.cloud.advance(600)

    def message_without(self, permission: str) -> str:
        """What `up` or `down` says of a missing permission; afterwards all is removed."""
        (name,) = [name for name in ROLES if permission in CUSTOM[name]["includedPermissions"]]
        self.permit(name, without=permission)
        site, message = None, ""
        try:
            site = self.site()
            site.up()
            site.down()
        except Exception as error:  # noqa: BLE001 - whatever a user would see
            message = f"{error} {getattr(error, 'remedy', '')}"
        self.permit(name)
        (site or self.site()).down()
        assert set(self.cloud.state()) == self.before
        return message


@pytest.fixture
def life(cloud: Cloud, tmp_path: Path) -> Life:
    return Life(cloud, tmp_path)


def test_without_a_permission_a_command_fails_and_names_it(life: Life) -> None:
    for permission in SOME:
        assert permission in life.message_without(permission)


# Without it, the guard gets Google's role instead, which an owner may grant, and this deployer may not.
ANOTHER_MESSAGE = {"iam.roles.get": "resourcemanager.projects.setIamPolicy"}


@pytest.mark.soak
def test_each_permission_that_a_life_uses_is_needed(life: Life, tally: Tally) -> None:
    site = life.site()
    since = len(life.cloud.calls())
    site.up()
    site.down()
    held = {each for name in ROLES for each in CUSTOM[name]["includedPermissions"]}
    needed = sorted(held & {call["iam_action"] for call in life.cloud.calls(since)} & used(life.cloud))
    messages = {each: life.message_without(each) for each in needed}
    silent = {each: text for each, text in messages.items() if ANOTHER_MESSAGE.get(each, each) not in text}
    tally(f"{len(needed) - len(silent)} of {len(needed)} used permissions are needed; {silent}")
    assert silent == {}

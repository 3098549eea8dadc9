"""Several people call `up` for one cluster: each gets its roles, and takes none from the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import NAMESPACE_DNS, uuid5

from cloudrec.providers.azure.identity.identity import ROLE
from tests.contract.azure.support import Site
from tests.sandbox.azure.support import Azure

OTHER, LISTED = (str(uuid5(NAMESPACE_DNS, name)) for name in ("other", "listed"))
ROLES = ("acr-push", "acr-writer", "cluster", "storage")


@contextmanager
def caller(azure: Azure, name: str) -> Iterator[None]:
    before = dict(azure.env)
    azure.env.update({"AZURE_CLIENT_ID": name, "AZURE_CLIENT_SECRET": "secret"})
    try:
        yield
    finally:
        azure.env.update(before)


def roles_of_people(site: Site) -> set[str]:
    return {key for key in site.found() if key.startswith((f"{ROLE}/t-operator-", f"{ROLE}/t-admin-"))}


def roles_of_caller(of: str) -> set[str]:
    return {f"{ROLE}/t-operator-{name}-{of}" for name in ROLES}


def test_a_second_caller_takes_no_roles_from_the_first_and_removes_administrators_that_are_not_listed(
    azure: Azure, tmp_path: Path
) -> None:
    azure.control(clients={name: {"secret": "secret", "object_id": name} for name in (OTHER, LISTED)})
    site = Site(azure, tmp_path, settings={"admins": [f"app:{LISTED}"]})
    site.up()
    first = site.provider.layout(site.cluster).caller.object_id.lower()
    assert roles_of_people(site) == roles_of_caller(first) | {f"{ROLE}/t-admin-{LISTED}"}
    with caller(azure, OTHER):
        elsewhere = Site(azure, tmp_path / "elsewhere")
        assert elsewhere.planned().keys() == roles_of_caller(OTHER) | {f"{ROLE}/t-admin-{LISTED}"}
        elsewhere.up()
        assert elsewhere.planned() == {}
        assert roles_of_people(elsewhere) == roles_of_caller(first) | roles_of_caller(OTHER)
    again = Site(azure, tmp_path)
    again.up()
    assert again.planned() == {}
    assert roles_of_people(again) == roles_of_caller(first) | roles_of_caller(OTHER)
    again.down()
    assert again.found() == {}

"""An id that a cloud describes is checked before it is kept: with a wrong one, `down` would never end."""

from __future__ import annotations

import pytest

from cloudrec.providers.azure.api import ids as azure
from cloudrec.providers.gcp.api import ids as gcp
from cloudrec.providers.gcp.api import operations

GROUP = "/subscriptions/s/resourceGroups/cloudrec-a"
ROLE = (
    f"{GROUP}/providers/Microsoft.Network/virtualNetworks/v/providers/Microsoft.Authorization/roleAssignments"
)


@pytest.mark.parametrize(
    "identity", [GROUP, f"{GROUP}/providers/Microsoft.Storage/storageAccounts/x", f"{ROLE}/0-1"]
)
def test_an_id_of_azure_is_kept(identity: str) -> None:
    assert azure.known(identity) == identity


@pytest.mark.parametrize(
    "identity", [None, "", "x", "/", f"{ROLE}/", GROUP[1:], f"{GROUP}/providers", f"{GROUP}\n"]
)
def test_what_is_no_id_of_azure_is_refused(identity: str | None) -> None:
    with pytest.raises(ValueError, match="with the id"):
        azure.known(identity)


@pytest.mark.parametrize("path", ["projects/p/global/networks/n", "projects/p/regions/r/subnetworks/n"])
def test_a_link_of_google_is_kept_without_its_host(path: str) -> None:
    assert gcp.known(f"https://www.googleapis.com/compute/v1/{path}") == gcp.known(path) == path


@pytest.mark.parametrize(
    "link",
    ["", "x", "projects/", "projects/p/regions/r/routers/", "projects/p/global", "projects/p/regions/r/x"],
)
def test_what_is_no_link_of_google_is_refused(link: str) -> None:
    with pytest.raises(ValueError, match="with the link"):
        gcp.known(link)


@pytest.mark.parametrize("name", ["", "x", "operations/", "operations/\x00"])
def test_what_is_no_operation_of_google_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="an operation with the name"):
        operations.named("lustre", name)
    assert operations.named("lustre", "operations/x.1") == "lustre operations/x.1"

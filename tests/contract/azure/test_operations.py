"""Changes that Azure answers before they are done: followed, begun again, told why they failed, taken up."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from cloudrec.engine.graph import Condition, Resource
from cloudrec.providers.azure import client, errors, groups, network
from cloudrec.providers.azure.driver import AzureDriver
from tests.contract.sandbox_azure.support import Azure
from tests.unit.providers_azure.support import layout

BUSY = {"code": "AnotherOperationInProgress", "message": "Another operation is in progress."}
LIMIT = {"code": "PublicIPCountLimitReached", "message": "Cannot create more than 10 public IPs."}


class Account:
    """A group on the stand-in, and drivers as one process has them."""

    def __init__(self, azure: Azure) -> None:
        self.azure = azure
        azure.control(registered=["*"])
        of = replace(layout(), subscription=azure.subscription)
        self.described = {
            resource.key: resource for part in (groups, network) for resource in part.resources(of)
        }
        self.identities: dict[str, str] = {}
        self.create(self.driver("resource-group"), "resource-group/t")

    def driver(self, kind: str) -> AzureDriver:
        reached = client.Azure(self.azure.env)
        return {**groups.drivers(reached), **network.drivers(reached)}[kind]

    def create(self, driver: AzureDriver, key: str) -> str:
        resource = self.described[key]
        self.identities[key] = driver.create(resource, token=_ATTEMPT, identities=self.identities)
        return self.identities[key]

    def fails(self, action: str, **error: str) -> None:
        wish = {"service": "network", "action": action, "kind": "async", **error}
        self.azure.control(faults=[wish])


_ATTEMPT = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def account(azure: Azure) -> Account:
    azure.control(speed=0.001, durations={"*": 60})
    return Account(azure)


def told(driver: AzureDriver, identity: str) -> tuple[Condition, str]:
    return driver.condition(driver.kind, identity)


def address(account: Account) -> Resource:
    return account.described["public-ip/t"]


def test_a_change_is_under_way_until_its_operation_ends_and_no_thread_waits_for_it(account: Account) -> None:
    driver, threads = account.driver("public-ip"), threading.active_count()
    identity = account.create(driver, "public-ip/t")
    assert threading.active_count() == threads
    assert told(driver, identity)[0] is Condition.PENDING
    assert driver.operation(identity)
    account.azure.advance(61)
    assert told(driver, identity) == (Condition.READY, "")
    assert driver.operation(identity) == ""


def test_another_process_takes_up_a_change_and_a_removal(account: Account) -> None:
    first, second = account.driver("public-ip"), account.driver("public-ip")
    identity = account.create(first, "public-ip/t")
    second.resume(identity, first.operation(identity))
    seen = second.find(address(account))
    assert seen is not None
    assert seen.condition is Condition.PENDING
    account.azure.advance(61)
    assert told(second, identity)[0] is Condition.READY
    second.delete(seen)
    first.resume(identity, second.operation(identity))
    assert told(second, identity)[0] is Condition.DELETING
    account.azure.advance(61)
    assert told(second, identity)[0] is Condition.GONE
    assert second.find(address(account)) is None


def test_a_change_that_fails_for_a_reason_that_passes_is_begun_again(account: Account) -> None:
    driver = account.driver("public-ip")
    account.fails("Put publicIPAddresses", **BUSY)
    identity = account.create(driver, "public-ip/t")
    account.azure.advance(61)
    assert told(driver, identity) == (Condition.PENDING, BUSY["message"])
    account.azure.advance(61)
    assert told(driver, identity)[0] is Condition.READY


def test_a_removal_that_fails_for_a_reason_that_passes_is_begun_again(account: Account) -> None:
    driver = account.driver("public-ip")
    identity = account.create(driver, "public-ip/t")
    account.azure.advance(61)
    account.fails("Delete publicIPAddresses", **BUSY)
    seen = driver.find(address(account))
    assert seen is not None
    driver.delete(seen)
    account.azure.advance(61)
    assert told(driver, identity) == (Condition.DELETING, BUSY["message"])
    account.azure.advance(61)
    assert told(driver, identity)[0] is Condition.GONE


def test_a_removal_that_fails_for_good_is_told(account: Account) -> None:
    driver = account.driver("public-ip")
    identity = account.create(driver, "public-ip/t")
    account.azure.advance(61)
    account.fails("Delete publicIPAddresses", code="ScopeIsHeld", message="somebody holds it")
    seen = driver.find(address(account))
    assert seen is not None
    driver.delete(seen)
    account.azure.advance(61)
    with pytest.raises(errors.OperationFailedError, match="ScopeIsHeld: somebody holds it"):
        told(driver, identity)


def test_why_a_change_failed_is_told_to_another_process_too(account: Account) -> None:
    first, second = account.driver("public-ip"), account.driver("public-ip")
    account.fails("Put publicIPAddresses", **LIMIT)
    identity = account.create(first, "public-ip/t")
    account.azure.advance(61)
    condition, reason = told(first, identity)
    assert condition is Condition.FAILED
    assert LIMIT["message"] in reason
    second.resume(identity, first.operation(identity))
    assert told(second, identity) == (condition, reason)
    assert second.failure(identity) is not None


def test_that_there_is_none_is_told_apart(account: Account) -> None:
    driver = account.driver("public-ip")
    account.fails("Put publicIPAddresses", code="ZonalAllocationFailed", message="The zone is full.")
    identity = account.create(driver, "public-ip/t")
    account.azure.advance(61)
    condition, reason = told(driver, identity)
    assert condition is Condition.UNAVAILABLE
    assert "The zone is full." in reason


def test_what_failed_to_be_made_is_mended_in_place(account: Account) -> None:
    driver = account.driver("public-ip")
    account.fails("Put publicIPAddresses", **LIMIT)
    identity = account.create(driver, "public-ip/t")
    account.azure.advance(61)
    seen = driver.find(address(account))
    assert seen is not None
    assert seen.condition is Condition.READY
    difference = driver.difference(address(account), seen)
    assert difference is not None
    assert difference.in_place
    assert LIMIT["message"] in difference.reason
    driver.change(address(account), seen, identities=account.identities)
    account.azure.advance(61)
    assert told(driver, identity)[0] is Condition.READY
    mended = driver.find(address(account))
    assert mended is not None
    assert driver.difference(address(account), mended) is None


def test_what_an_operation_that_azure_has_forgotten_did_is_told_by_the_thing_itself(account: Account) -> None:
    driver = account.driver("public-ip")
    identity = account.create(driver, "public-ip/t")
    account.azure.advance(100_000)
    assert told(driver, identity) == (Condition.READY, "")

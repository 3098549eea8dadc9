"""Azure's long-running operations: polling, retries, causes of failure and resumption by another process."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from cloudrec.engine.graph import Condition, Resource
from cloudrec.providers.azure import groups
from cloudrec.providers.azure.api import client
from cloudrec.providers.azure.api.driver import AzureDriver
from cloudrec.providers.azure.network import network
from cloudrec.providers.base.operated import OperationFailedError
from tests.sandbox.azure.support import Azure
from tests.unit.providers_azure.support import layout

BUSY = {"code": "AnotherOperationInProgress", "message": "Another operation is in progress."}
LIMIT = {"code": "PublicIPCountLimitReached", "message": "Cannot create more than 10 public IPs."}


class Account:
    """A resource group on the stand-in, and the drivers of one process."""

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


def condition_of(driver: AzureDriver, identity: str) -> tuple[Condition, str]:
    return driver.condition(driver.kind, identity)


def address(account: Account) -> Resource:
    return account.described["public-ip/t"]


def test_a_change_is_in_progress_until_its_operation_ends_without_a_waiting_thread(
    account: Account,
) -> None:
    driver, before = account.driver("public-ip"), set(threading.enumerate())
    identity = account.create(driver, "public-ip/t")
    assert not set(threading.enumerate()) - before  # threads of earlier tests may end during this test
    assert condition_of(driver, identity)[0] is Condition.PENDING
    assert driver.operation(identity)
    account.azure.advance(61)
    assert condition_of(driver, identity) == (Condition.READY, "")
    assert driver.operation(identity) == ""


def test_another_process_resumes_a_change_and_a_deletion(account: Account) -> None:
    first, second = account.driver("public-ip"), account.driver("public-ip")
    identity = account.create(first, "public-ip/t")
    second.resume(identity, first.operation(identity))
    seen = second.find(address(account))
    assert seen is not None
    assert seen.condition is Condition.PENDING
    account.azure.advance(61)
    assert condition_of(second, identity)[0] is Condition.READY
    second.delete(seen)
    assert second.operation(identity).startswith("removal Azure-AsyncOperation https://")
    first.resume(identity, second.operation(identity))
    assert condition_of(second, identity)[0] is Condition.DELETING
    account.azure.advance(61)
    assert condition_of(second, identity)[0] is Condition.GONE
    assert second.find(address(account)) is None


def test_a_change_with_a_transient_failure_is_retried(account: Account) -> None:
    driver = account.driver("public-ip")
    account.fails("Put publicIPAddresses", **BUSY)
    identity = account.create(driver, "public-ip/t")
    account.azure.advance(61)
    assert condition_of(driver, identity) == (Condition.PENDING, BUSY["message"])
    account.azure.advance(61)
    assert condition_of(driver, identity)[0] is Condition.READY


def test_a_deletion_with_a_transient_failure_is_retried(account: Account) -> None:
    driver = account.driver("public-ip")
    identity = account.create(driver, "public-ip/t")
    account.azure.advance(61)
    account.fails("Delete publicIPAddresses", **BUSY)
    seen = driver.find(address(account))
    assert seen is not None
    driver.delete(seen)
    account.azure.advance(61)
    assert condition_of(driver, identity) == (Condition.DELETING, BUSY["message"])
    account.azure.advance(61)
    assert condition_of(driver, identity)[0] is Condition.GONE


def test_a_permanently_failed_deletion_is_reported_to_the_process_that_started_it(account: Account) -> None:
    driver = account.driver("public-ip")
    identity = account.create(driver, "public-ip/t")
    account.azure.advance(61)
    account.fails("Delete publicIPAddresses", code="ScopeIsHeld", message="a lock holds it")
    seen = driver.find(address(account))
    assert seen is not None
    driver.delete(seen)
    account.azure.advance(61)
    other = account.driver("public-ip")
    other.resume(identity, driver.operation(identity))
    with pytest.raises(OperationFailedError, match="ScopeIsHeld: a lock holds it"):
        condition_of(driver, identity)
    assert condition_of(other, identity)[0] is not Condition.DELETING  # the next `down` starts a new deletion


def test_the_cause_of_a_failed_change_is_reported_by_another_process(account: Account) -> None:
    first, second = account.driver("public-ip"), account.driver("public-ip")
    account.fails("Put publicIPAddresses", **LIMIT)
    identity = account.create(first, "public-ip/t")
    account.azure.advance(61)
    condition, reason = condition_of(first, identity)
    assert condition is Condition.FAILED
    assert LIMIT["message"] in reason
    second.resume(identity, first.operation(identity))
    assert condition_of(second, identity) == (condition, reason)
    assert second.failure(identity) is not None


def test_missing_capacity_is_distinguished_from_other_failures(account: Account) -> None:
    driver = account.driver("public-ip")
    account.fails("Put publicIPAddresses", code="ZonalAllocationFailed", message="The zone is full.")
    identity = account.create(driver, "public-ip/t")
    account.azure.advance(61)
    condition, reason = condition_of(driver, identity)
    assert condition is Condition.UNAVAILABLE
    assert "The zone is full." in reason


def test_a_failed_creation_is_repaired_in_place(account: Account) -> None:
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
    assert condition_of(driver, identity)[0] is Condition.READY
    mended = driver.find(address(account))
    assert mended is not None
    assert driver.difference(address(account), mended) is None


def test_the_result_of_an_expired_operation_is_read_from_the_resource(
    account: Account,
) -> None:
    driver = account.driver("public-ip")
    identity = account.create(driver, "public-ip/t")
    account.azure.advance(100_000)
    assert condition_of(driver, identity) == (Condition.READY, "")

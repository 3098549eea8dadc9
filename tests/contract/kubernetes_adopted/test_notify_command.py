"""`cloudrec notify test --cluster` and `notify status`, against the stand-in and a real receiver."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cloudrec.app.guard import hold_to_end
from cloudrec.app.notices.failing import failing
from cloudrec.app.notices.sending import notifications, send_test
from cloudrec.errors import PreflightError, SpecError
from cloudrec.keeper.guard import Guard
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.providers.base.protocol import Halt
from cloudrec.spec.models import NotifySpec
from tests.contract.kubernetes_adopted.test_adopted import kube, obj
from tests.contract.kubernetes_adopted.test_guard import NAMESPACE
from tests.unit.notify.support_receivers import Hooks, hooks

if TYPE_CHECKING:
    from cloudrec.kubernetes.client.client import Kube
    from tests.conformance.support_clouds import Site

NOTIFY = NotifySpec(webhook="HOOK")


class Rounds(threading.Thread):
    """The keeper in its pod: rounds until the test ends."""

    def __init__(self, client: Kube, server: Hooks) -> None:
        super().__init__(daemon=True)
        self._client, self._server = client, server
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.wait(0.2):
            Guard(
                kube=self._client,
                namespace=NAMESPACE,
                halt=lambda _cluster: Halt(),
                secrets={"webhook": self._server.url},
                report=lambda _line: None,
            ).round()

    def end(self) -> None:
        self._ending.set()
        self.join(60)


@pytest.fixture
def admin(site: Site) -> Iterator[Kube]:
    """The API of an adopted cluster without an end, whose keeper notifies; its pods are not run."""
    site.cloud.control(processes=False)
    site.cluster = site.cluster.model_copy(update={"addons": "none"})
    site.up()
    site.cluster = site.cluster.model_copy(update={"addons": "install", "notify": NOTIFY})
    image = "registry.example/cloudrec@sha256:" + "0" * 64
    access = site.application.provider("kubernetes").access(site.cluster)
    assert isinstance(access, KubernetesAccess)
    with kube(site) as found:
        hold_to_end(site.application, site.cluster, found, access.target, image=image)
        yield found


def _secret(client: Kube, **data: str) -> None:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    client.create(obj("Secret", "cloudrec-secrets", namespace=NAMESPACE, type="Opaque", data=encoded))


def test_the_keeper_sends_the_test_that_a_user_requests(site: Site, admin: Kube) -> None:
    with hooks(200) as server:
        _secret(admin, HOOK=server.url)
        keeper = Rounds(admin, server)
        keeper.start()
        try:
            began = time.monotonic()
            (sent,) = send_test(site.application, NOTIFY, site.cluster)
        finally:
            keeper.end()
    assert time.monotonic() - began < 120
    assert (sent.sender, sent.channel, sent.state) == (f"keeper of {site.cluster.title}", "webhook", "sent")
    assert [got["event"] for got in server.got] == ["test"]


def test_status_names_the_keeper_whose_channel_fails(site: Site, admin: Kube) -> None:
    title = site.cluster.title
    request = site.cluster.model_dump(mode="json")
    site.application.journal.put_cluster(title, "kubernetes", request)
    assert failing(site.application, [title], []) == []
    with hooks(404) as server:
        _secret(admin, HOOK=server.url)
        keeper = Rounds(admin, server)
        keeper.start()
        try:
            send_test(site.application, NOTIFY, site.cluster)
        finally:
            keeper.end()
    (found,) = failing(site.application, [title], [])
    assert (found.sender, found.channel, found.count) == (f"keeper of {title}", "webhook", 1)
    assert "404" in found.why
    assert abs((found.since or 0.0) - time.time()) < 600
    assert f"`cloudrec notify test --cluster {title}` sends a test" in found.text


def test_a_secret_that_is_missing_is_named_before_anything_is_asked(site: Site, admin: Kube) -> None:
    with pytest.raises(PreflightError, match=r"'cloudrec-secrets' of namespace .*: no such Secret"):
        send_test(site.application, NOTIFY, site.cluster)
    _secret(admin, OTHER="x")
    with pytest.raises(PreflightError, match="no key 'HOOK'") as refused:
        send_test(site.application, NOTIFY, site.cluster)
    assert "kubectl create secret generic" in str(refused.value.remedy)
    silent = site.cluster.model_copy(update={"notify": None})
    with pytest.raises(SpecError, match="notifies no one"):
        send_test(site.application, NOTIFY, silent)


def test_without_a_cluster_this_machine_sends_and_shows_each_failure(site: Site) -> None:
    with hooks(404) as server:
        here = replace(site.application, environment={**site.application.environment, "HOOK": server.url})
        spec = NotifySpec(webhook="HOOK", slack="ABSENT")
        found = {each.channel: each for each in send_test(here, spec)}
    assert found["webhook"].why == "it answered 404 Not Found"
    assert found["slack"].why == "its secret 'ABSENT' is not set"
    assert notifications(site.application) == []

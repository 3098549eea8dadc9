"""The guard's rounds notify of what happened: over HTTP, once, and never at the expense of the round."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudrec.keeper.guard import Guard
from cloudrec.keeper.note import ASKED, NAME, OUTBOX, Note
from cloudrec.keeper.notices.gauges import KeeperGauges
from cloudrec.providers.base.protocol import Halt
from cloudrec.spec.models import ClusterSpec, NotifySpec
from tests.contract.kubernetes_adopted.test_adopted import obj
from tests.contract.kubernetes_adopted.test_guard import NAMESPACE, client, job, metered
from tests.unit.notify.support_receivers import Hooks, hooks

if TYPE_CHECKING:
    from cloudrec.kubernetes.client.client import Kube
    from tests.conformance.support_clouds import Site

__all__ = ["client"]


class Notifying:
    """A guard that notifies, and is replaced by another one for each round."""

    def __init__(self, client: Kube, note: Note, url: str) -> None:
        self.client, self.url = client, url
        self.said = list[str]()
        self.now = datetime.now(UTC)
        self.gauges = KeeperGauges()
        client.create(obj("ConfigMap", NAME, namespace=NAMESPACE, data={"guard.json": note.to_json()}))

    def round(self, **later: float) -> bool:
        self.now += timedelta(**later)
        guard = Guard(
            kube=self.client,
            namespace=NAMESPACE,
            halt=lambda _cluster: Halt(),
            secrets={"webhook": self.url},
            gauges=self.gauges,
            now=lambda: self.now,
            report=self.said.append,
        )
        return guard.round()

    @property
    def data(self) -> dict[str, str]:
        found = self.client.get("ConfigMap", NAME, namespace=NAMESPACE)
        assert found is not None
        data: dict[str, str] = found["data"]
        return data


def _note(**given: Any) -> Note:
    return Note(
        cluster=ClusterSpec(name="conformance", provider="aws", **given),
        notify=NotifySpec(webhook="hook/url"),
    )


def _finish(client: Kube, name: str) -> None:
    """Give a Job the status of one that has completed, as its controller does."""
    found = client.get("Job", name, namespace=NAMESPACE)
    assert found is not None
    before = found.get("status", {})
    now = datetime.now(UTC).isoformat(timespec="seconds")
    began = before.get("startTime", now)
    ended = {"type": "Complete", "status": "True", "lastTransitionTime": now, "reason": "Test"}
    status = {
        **before,
        # The API server wants the criterion before the end of a Job (validation of Job status).
        "conditions": [{**ended, "type": "SuccessCriteriaMet"}, ended],
        "startTime": began,
        "completionTime": max(now, began),
        "succeeded": 2,
        "completedIndexes": "0,1",
        "active": 0,
        "ready": 0,
    }
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}/status"
    client.raw("PUT", path, body={**found, "status": status})


def _events(server: Hooks) -> list[tuple[str, str | None]]:
    return [(got["event"], got["run"]) for got in server.got]


def test_ends_and_money_are_sent_once_by_whichever_keeper(site: Site, client: Kube) -> None:
    with hooks(200) as server:
        note = metered(site, budget_usd=1000.0)
        note = Note(**{**note.__dict__, "notify": NotifySpec(webhook="hook/url")})
        guard = Notifying(client, note, server.url)
        assert guard.round()
        job(client, "r")
        assert guard.round(minutes=2)
        assert _events(server) == []
        assert guard.round(hours=4.3)  # $121 an hour
        _finish(client, "r")
        assert guard.round(minutes=2)
        assert guard.round(minutes=2)
        assert _events(server) == [("budget", None), ("finished", "r")]
    details = server.got[0]["details"]
    assert details["percent"] == 50
    assert details["budget_usd"] == 1000.0
    page = guard.gauges.text()
    assert 'cloudrec_cluster_nodes{capacity_type="' not in page  # the note's tariffs name none
    assert 'cloudrec_cluster_nodes{cluster="conformance",instance_type="p5.48xlarge",pool="gpu"} 2' in page
    assert 'cloudrec_cluster_gpus{cluster="conformance",instance_type="p5.48xlarge",pool="gpu"} 16' in page
    assert 'cloudrec_cluster_cost_usd_per_hour{cluster="conformance"} 121' in page
    assert 'cloudrec_cluster_budget_usd{cluster="conformance"} 1000' in page


def test_an_end_is_sent_before_it_and_when_it_comes(client: Kube) -> None:
    with hooks(200) as server:
        expires = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
        guard = Notifying(client, _note(expires=expires), server.url)
        for minutes in (0, 80, 15, 2, 30, 2):
            assert guard.round(minutes=minutes)
    assert _events(server) == [("end-near", None), ("ended", None)]
    assert 'cloudrec_cluster_remaining_seconds{cluster="conformance"} 0' in guard.gauges.text()


def test_a_receiver_that_fails_is_tried_again_and_one_that_hangs_holds_no_round_up(client: Kube) -> None:
    with hooks(500, 200, hang_s=0.2) as server:
        guard = Notifying(client, _note(), server.url)
        assert guard.round()
        client.patch("ConfigMap", NAME, {"data": {ASKED: "one"}}, namespace=NAMESPACE)
        assert guard.round(minutes=2)
        assert json.loads(guard.data[OUTBOX])["waiting"][0]["why"] == "it answered 500 Internal Server Error"
        assert "cloudrec_keeper_notifications_waiting" in guard.gauges.text()
        assert guard.round(minutes=2)
        assert guard.round(minutes=2)
    assert _events(server) == [("test", None), ("test", None)]
    assert len({got["id"] for got in server.got}) == 1
    assert json.loads(guard.data[OUTBOX])["waiting"] == []
    assert "webhook: test: sent" in guard.said
    with hooks(drip=True) as slow:
        guard.url = slow.url
        client.patch("ConfigMap", NAME, {"data": {ASKED: "two"}}, namespace=NAMESPACE)
        began = time.monotonic()
        assert guard.round(minutes=2)
    assert time.monotonic() - began < 40  # 20 s of deliveries, and a round
    assert "it did not answer in time" in json.loads(guard.data[OUTBOX])["waiting"][0]["why"]


def test_an_error_of_notifying_ends_no_round(client: Kube) -> None:
    with hooks(200) as server:
        guard = Notifying(client, _note(), server.url)
        client.patch("ConfigMap", NAME, {"data": {OUTBOX: "damaged"}}, namespace=NAMESPACE)
        assert guard.round()  # a damaged outbox is a first look
        assert json.loads(guard.data[OUTBOX])["waiting"] == []


def test_the_orders_of_a_guard_that_notifies_are_read_by_an_older_one() -> None:
    document = json.loads(_note().to_json())
    assert document.pop("notify")["webhook"] == "hook/url"
    assert not {"notify", "metrics", "metrics_port"} & document["cluster"].keys()
    assert Note.of(_note().to_json()).notify == NotifySpec(webhook="hook/url")
    broken = json.dumps({**document, "notify": {"pigeon": "x"}})
    assert Note.of(broken).notify is None  # its end counts even so

"""Preemption notices of the clouds, from correct, unresponsive, slow and invalid services."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.trainer.support_metadata import QUIET, Metadata, run_metadata
from trainer.base.errors import ConfigError
from trainer.preempt import SERVICES, Notice, NoticeWatch, StopFlag, open_watches
from trainer.preempt.metadata import MetadataError, MetadataService
from trainer.preempt.notice import plausible_end
from trainer.preempt.services import default_url
from trainer.preempt.watch import Poller

ANNOUNCED: dict[str, dict[str, object]] = {
    "aws": {"action": "terminate"},
    "azure": {"event": "Preempt"},
    "gcp": {"preempted": True},
}
LEADS = {"aws": 120, "azure": 30, "gcp": 30}
CLOUDS = tuple(ANNOUNCED)


@pytest.fixture(scope="module")
def running() -> Iterator[Metadata]:
    with run_metadata() as metadata:
        yield metadata


@pytest.fixture
def metadata(running: Metadata) -> Iterator[Metadata]:
    running.control(**QUIET)
    yield running
    running.control(**QUIET)


def _poller(metadata: Metadata, cloud: str) -> Poller:
    return SERVICES[cloud].make_poller(MetadataService(metadata.url))


def _eventually(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 180
    while not true():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.005)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_notice_is_reported_before_an_announcement(metadata: Metadata, cloud: str) -> None:
    poller = _poller(metadata, cloud)
    assert poller.poll() is None
    metadata.control(**{cloud: ANNOUNCED[cloud]})
    notice = poller.poll()
    assert notice is not None
    assert (notice.source, notice.final) == (cloud, True)
    assert LEADS[cloud] / 2 < notice.seconds_left <= LEADS[cloud]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_watch_reports_notices_during_the_run(metadata: Metadata, cloud: str) -> None:
    watch = NoticeWatch(cloud, replace(SERVICES[cloud], pause_s=0.01), MetadataService(metadata.url))
    flag = StopFlag([watch])
    watch.start()
    try:
        assert not flag.requested
        metadata.control(**{cloud: ANNOUNCED[cloud]})
        _eventually(lambda: flag.requested)
        metadata.control(**{cloud: None})  # taking it back changes nothing: ranks are stopping by now
        assert flag.requested
        assert flag.seconds_left <= LEADS[cloud]
    finally:
        watch.close()


@pytest.mark.parametrize(
    ("cloud", "lead_s", "least", "most"),
    [
        pytest.param("gcp", 100.0, 95, 100, id="longer than the default, which no response contains"),
        pytest.param("gcp", 10.0, 5, 10, id="shorter: the rest is for the system's pods"),
        pytest.param("azure", 10.0, 0, 10, id="the process ends before the machine"),
        pytest.param("azure", 300.0, 15, 30, id="an announced time counts"),
        pytest.param("aws", 300.0, 60, 120, id="an announced time counts, on AWS"),
    ],
)
def test_the_time_after_a_notice_is_that_of_the_machines_settings(
    metadata: Metadata, cloud: str, lead_s: float, least: float, most: float
) -> None:
    metadata.control(**{cloud: ANNOUNCED[cloud]})
    with open_watches([cloud], {cloud: metadata.url}, lead_s=lead_s) as watches:
        flag = StopFlag(watches)
        _eventually(lambda: flag.requested)
        assert least <= flag.seconds_left <= most


def test_gcp_waits_for_a_change_instead_of_polling(metadata: Metadata) -> None:
    path = "/computeMetadata/v1/instance/preempted"
    poller, before = _poller(metadata, "gcp"), metadata.asked(path)
    poller.poll()
    heard: list[Notice | None] = []
    waiting = threading.Thread(target=lambda: heard.append(poller.poll()))
    waiting.start()
    _eventually(lambda: metadata.asked(path) == before + 2)
    assert not heard
    metadata.control(gcp={"preempted": True})
    waiting.join(300)
    assert [notice is not None for notice in heard] == [True]


def test_an_expired_token_is_renewed(metadata: Metadata) -> None:
    poller = _poller(metadata, "aws")
    poller.poll()
    metadata.control(expire_tokens=True, aws=ANNOUNCED["aws"])
    with pytest.raises(MetadataError, match="401"):
        poller.poll()
    assert poller.poll() is not None


def test_a_rebalance_recommendation_requests_one_checkpoint_and_no_stop(metadata: Metadata) -> None:
    metadata.control(aws={"rebalance": True})
    with open_watches(["aws"], {"aws": metadata.url}) as watches:
        flag = StopFlag(watches)
        _eventually(lambda: watches[0].notice() is not None)
        advice = flag.take_advice()
        assert advice is not None
        assert "rebalance" in advice.reason
        assert flag.take_advice() is None
        assert not flag.requested


@pytest.mark.parametrize(
    ("azure", "ours"),
    [
        ({"event": "Preempt", "resources": ["vm-0", "vm-7"]}, True),
        ({"event": "Preempt", "resources": ["vm-7"]}, False),
        ({"event": "Preempt", "resources": []}, True),
        ({"event": "Redeploy"}, True),
        ({"event": "Freeze"}, False),
    ],
)
def test_azure_events_are_filtered_by_machine_and_type(
    metadata: Metadata, azure: dict[str, object], *, ours: bool
) -> None:
    metadata.control(azure=azure)
    assert (_poller(metadata, "azure").poll() is not None) is ours


def test_a_started_azure_event_leaves_no_time(metadata: Metadata) -> None:
    metadata.control(azure={"status": "Started"})
    notice = _poller(metadata, "azure").poll()
    assert notice is not None
    assert notice.seconds_left == 0


@pytest.mark.parametrize("cloud", ["aws", "azure"])
@pytest.mark.parametrize("moment", ["yesterday", "", "0001-01-01T00:00:00Z", "Mon, 20 Nov 1995 10:00:00 GMT"])
def test_a_notice_with_an_absurd_time_is_used_without_its_time(
    metadata: Metadata, cloud: str, moment: str
) -> None:
    metadata.control(**{cloud: {**ANNOUNCED[cloud], "time": moment or "\x00"}})
    notice = _poller(metadata, cloud).poll()
    assert notice is not None
    assert LEADS[cloud] / 2 < notice.seconds_left <= LEADS[cloud]


@pytest.mark.parametrize(
    ("told", "meant"), [(-600, 120), (-3, 0), (40, 40), (124, 120), (1e9, 120), (math.inf, 120)]
)
def test_a_wrong_clock_gives_a_bounded_time(told: float, meant: float) -> None:
    left = plausible_end(told, lead_s=120) - time.monotonic()
    assert meant - 5 < left <= meant


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("fault", [{"kind": "garbage"}, {"kind": "status", "status": 503}])
def test_an_invalid_response_is_not_a_notice(
    metadata: Metadata, cloud: str, fault: dict[str, object]
) -> None:
    poller = _poller(metadata, cloud)
    metadata.control(fault=fault, **{cloud: ANNOUNCED[cloud]})
    with pytest.raises(MetadataError):
        poller.poll()
    metadata.control(fault=None)
    assert poller.poll() is not None


def test_an_unknown_action_is_not_a_notice(metadata: Metadata) -> None:
    metadata.control(aws={"action": "promote"})
    with pytest.raises(MetadataError, match="unknown action, 'promote'"):
        _poller(metadata, "aws").poll()


@pytest.mark.parametrize("kind", ["silence", "trickle"])
def test_an_endless_response_is_aborted_in_time(metadata: Metadata, kind: str) -> None:
    metadata.control(fault={"kind": kind})
    service = MetadataService(metadata.url)
    with pytest.raises(MetadataError, match=r"no answer within 0\.1 s"):
        service.get("/latest/anything", {}, timeout_s=0.1)


def test_notices_of_a_slow_service_are_reported(metadata: Metadata) -> None:
    metadata.control(delay_s=0.05, aws=ANNOUNCED["aws"])
    assert _poller(metadata, "aws").poll() is not None


@pytest.mark.parametrize("cloud", CLOUDS)
def test_an_unresponsive_service_delays_neither_the_run_nor_its_end(metadata: Metadata, cloud: str) -> None:
    metadata.control(fault={"kind": "silence"})
    with open_watches([cloud], {cloud: metadata.url}) as watches:
        assert not StopFlag(watches).requested
    assert not watches[0]._thread.is_alive()


def test_a_failing_service_is_warned_about_once_and_polled_again(
    metadata: Metadata, caplog: pytest.LogCaptureFixture
) -> None:
    metadata.control(fault={"kind": "garbage"})
    watch = NoticeWatch(
        "aws", replace(SERVICES["aws"], pause_s=0.01, lead_s=0.08), MetadataService(metadata.url)
    )
    before = metadata.asked("/latest/api/token")
    watch.start()
    try:
        _eventually(lambda: metadata.asked("/latest/api/token") > before + 3)
        metadata.control(fault=None, aws=ANNOUNCED["aws"])
        _eventually(lambda: watch.notice() is not None)
    finally:
        watch.close()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"no preemption notices from aws at {metadata.url} for now: it gives no")
    assert "hop limit" in warning


def test_an_unreachable_address_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with open_watches(["gcp"], {"gcp": "http://127.0.0.1:1"}) as watches:
        _eventually(lambda: bool(caplog.records))
        assert watches[0].notice() is None
    assert "Connection refused" in caplog.text


@pytest.mark.parametrize("url", ["169.254.169.254", "https://x", "http://", "http://x:port", "http://x?a=b"])
def test_an_invalid_address_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError, match="metadata service's URL"), open_watches(["aws"], {"aws": url}):
        pass


def test_the_variables_of_the_sdks_set_the_service_addresses() -> None:
    environment = {
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1338",
        "GCE_METADATA_HOST": "127.0.0.1:81",
    }
    urls = {cloud: default_url(cloud, environment) for cloud in CLOUDS}
    assert urls == {
        "aws": "http://127.0.0.1:1338",
        "azure": "http://169.254.169.254",
        "gcp": "http://127.0.0.1:81",
    }
    assert default_url("gcp", {}) == "http://metadata.google.internal"


def test_the_notice_with_the_least_time_counts() -> None:
    class _Source:
        def __init__(self, seconds: float) -> None:
            self.said = Notice(source=str(seconds), reason="", ends_at=time.monotonic() + seconds)

        def notice(self) -> Notice:
            return self.said

    flag = StopFlag([_Source(100), _Source(30), _Source(60)])
    assert flag.notice is not None
    assert flag.notice.source == "30"


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/latest/meta-data/spot/instance-action", "GET", {}, 401),
        ("/latest/api/token", "PUT", {}, 400),
        ("/latest/api/token", "GET", {"X_aws_ec2_metadata_token_ttl_seconds": "60"}, 400),
        ("/latest/api/token", "PUT", {"X_aws_ec2_metadata_token_ttl_seconds": "60"}, 200),
        ("/metadata/scheduledevents?api-version=2020-07-01", "GET", {}, 400),
        ("/metadata/scheduledevents", "GET", {"Metadata": "true"}, 400),
        ("/metadata/scheduledevents?api-version=2020-07-01", "GET", {"Metadata": "true"}, 200),
        ("/computeMetadata/v1/instance/preempted", "GET", {}, 403),
        ("/computeMetadata/v1/instance/preempted", "GET", {"Metadata_Flavor": "Google"}, 200),
        ("/elsewhere", "GET", {}, 404),
    ],
)
def test_the_stand_in_refuses_the_requests_that_clouds_refuse(
    metadata: Metadata, path: str, method: str, headers: dict[str, str], status: int
) -> None:
    assert metadata.status(path, method, **headers) == status

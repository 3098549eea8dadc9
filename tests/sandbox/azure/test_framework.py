"""The control API: time, faults, kills, the list of calls and the inventory."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError

from tests.sandbox.azure.support import GROUP, LOCATION, Azure, headers_of, refused, stand_in

BODY = {"location": LOCATION}
_PROGRAM = """
import os, sys, ssl
from http.client import HTTPSConnection
from urllib.parse import urlsplit
tls = ssl.create_default_context(cafile=os.environ["AZURE_CA_BUNDLE"])
host = urlsplit(os.environ["AZURE_RESOURCE_MANAGER_ENDPOINT_URL"]).netloc
connection = HTTPSConnection(host, timeout=180, context=tls)
print("ready", flush=True)
sys.stdin.readline()
root = "/subscriptions/" + os.environ["AZURE_SUBSCRIPTION_ID"] + "/resourcegroups/"
head = {"Authorization": "Bearer " + sys.argv[1]}
for number in range(9):
    connection.request("PUT", f"{root}g{number}?api-version=2025-04-01", '{"location": "eastus"}', head)
    connection.getresponse().read()
"""


def groups(azure: Azure) -> int:
    return sum(entry.startswith("resources:resourceGroups:") for entry in azure.state())


def test_a_reset_restores_an_empty_subscription(azure: Azure) -> None:
    azure.group()
    assert azure.state() == [
        f"resources:resourceGroups:/subscriptions/{azure.subscription}/resourceGroups/{GROUP}"
    ]
    azure.control(reset=True)
    assert (azure.state(), azure.pending(), azure.calls()) == ([], [], [])


def test_every_call_is_logged_with_its_permission_and_its_response(azure: Azure) -> None:
    azure.token()
    before = len(azure.calls())
    azure.group()
    clusters = azure.client("containerservice").managed_clusters
    assert list(clusters.list_by_resource_group(GROUP)) == []
    with refused("ResourceNotFound", status=404):
        clusters.list_cluster_user_credentials(GROUP, "none")
    names = ("service", "action", "iam_action", "status")
    root = "Microsoft.ContainerService/managedClusters"
    assert [tuple(line[name] for name in names) for line in azure.calls(since=before)] == [
        ("resources", "Put resourceGroups", "Microsoft.Resources/subscriptions/resourceGroups/write", 201),
        ("containerservice", "Get managedClusters", f"{root}/read", 200),
        (
            "containerservice",
            "Post managedClusters/listClusterUserCredential",
            f"{root}/listClusterUserCredential/action",
            404,
        ),
    ]


def test_an_unknown_route_is_refused_by_name(azure: Azure) -> None:
    path = azure.id("Microsoft.Batch/batchAccounts", "one")
    status, _, told = azure.raw("PUT", f"{path}?api-version=2024-07-01", BODY)
    assert (status, told["error"]["code"]) == (501, "InvalidResourceType")
    assert "batchAccounts" in told["error"]["message"]


@pytest.mark.parametrize(
    ("service", "method", "words", "code"),
    [
        ("resource", "resource_groups", ("get", GROUP), "SubscriptionRequestsThrottled"),
        ("containerservice", "managed_clusters", ("get", GROUP, "one"), "Throttled"),
        ("network", "nat_gateways", ("get", GROUP, "one"), "TooManyRequests"),
    ],
)
def test_a_throttled_call_has_the_error_of_the_service(
    azure: Azure, service: str, method: str, words: tuple[str, ...], code: str
) -> None:
    azure.group()
    call = getattr(getattr(azure.client(service), method), words[0])
    azure.control(faults=[{"kind": "throttle", "action": "Get.*"}])
    with refused(code, status=429) as caught:
        call(*words[1:])
    assert int(headers_of(caught.value)["Retry-After"]) > 0


def test_an_injected_error_has_its_code_status_and_message(azure: Azure) -> None:
    fault = {"kind": "error", "code": "AksCapacityHeavyUsage", "status": 409, "message": "none left"}
    azure.control(faults=[fault | {"action": "Put resourceGroups"}])
    with refused("AksCapacityHeavyUsage", "none left", status=409):
        azure.group()
    assert groups(azure) == 0


@pytest.mark.parametrize(("kind", "made"), [("lost", 1), ("drop", 0)])
def test_a_closed_connection_comes_before_or_after_the_effect(azure: Azure, kind: str, made: int) -> None:
    azure.control(faults=[{"kind": kind, "action": "Put resourceGroups"}])
    with pytest.raises((ServiceRequestError, ServiceResponseError)):
        azure.group()
    assert (groups(azure), azure.calls()[-1]["status"]) == (made, kind)


def test_a_hanging_response_lasts_until_the_client_times_out(azure: Azure) -> None:
    azure.control(faults=[{"kind": "timeout", "action": "Put resourceGroups"}])
    with pytest.raises((ServiceRequestError, ServiceResponseError)):
        azure.client("resource").resource_groups.create_or_update(GROUP, BODY, read_timeout=0.2)
    assert groups(azure) == 0


def test_an_operation_can_fail_after_a_successful_call(azure: Azure) -> None:
    azure.group()
    fault = {"kind": "async", "service": "network", "code": "InternalServerError", "message": "broken"}
    azure.control(faults=[fault])
    gateways = azure.client("network").nat_gateways
    body = {**BODY, "sku": {"name": "Standard"}}
    with refused("InternalServerError", "broken"):
        azure.done(gateways.begin_create_or_update, GROUP, "nat", body)
    assert gateways.get(GROUP, "nat").properties.provisioning_state == "Failed"


@pytest.mark.parametrize(("when", "made"), [("before", 1), ("after", 2)])
def test_a_process_is_killed_at_the_given_call(azure: Azure, when: str, made: int) -> None:
    words = [sys.executable, "-c", _PROGRAM, azure.token()]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=azure.env, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        azure.control(kill={"pid": process.pid, "call": 2, "when": when})
        process.communicate("go\n", timeout=180)
    assert process.returncode == -signal.SIGKILL
    assert groups(azure) == made


def test_virtual_time_has_a_speed_and_can_be_advanced(azure: Azure) -> None:
    before = azure.control(speed=0.001)["virtual_time"]
    after = azure.control(advance_s=3600)["virtual_time"]
    assert 3600 <= after - before < 3601
    assert azure.env["CLOUDREC_SANDBOX_SPEED"] == "60"


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"sped": 3}, "unknown: sped; there are: "),
        ({"durations": {"moon": 2}}, "unknown duration 'moon'"),
        ({"faults": [{"kind": "flood"}]}, "unknown kind of fault 'flood'.*async"),
        ({"lag_s": {"moon": 2}}, "nothing lags as moon"),
        ({"rates": {"moon": [1, 1]}}, "unknown rate 'moon'"),
        ({"registered": ["Microsoft.Moon"]}, "unknown namespace 'Microsoft.Moon'"),
        ({"subscriptions": {"x": "Broken"}}, "'Broken' is none of Enabled"),
        ({"kubernetes_versions": {"1.40": "late"}}, "'late' is none of official"),
        ({"infiniband": {}}, "infiniband is read-only"),
    ],
)
def test_an_invalid_control_request_is_refused(azure: Azure, wishes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        azure.control(**wishes)


def test_a_snapshot_restores_a_subscription_with_its_operations(azure: Azure) -> None:
    azure.group()
    gateways = azure.client("network").nat_gateways
    azure.begin(gateways.begin_create_or_update, GROUP, "nat", {**BODY, "sku": {"name": "Standard"}})
    before, moment = azure.state(), azure.control()["virtual_time"]
    azure.ask("POST", "/save", {"name": "half"})
    for _ in range(2):
        azure.group("other")
        azure.advance(60)
        assert (
            azure.client("network").nat_gateways.get(GROUP, "nat").properties.provisioning_state
            == "Succeeded"
        )
        azure.ask("POST", "/restore", {"name": "half"})
        assert (azure.state(), abs(azure.control()["virtual_time"] - moment) < 1) == (before, True)
        assert gateways.get(GROUP, "nat").properties.provisioning_state == "Creating"


def test_a_truncated_request_has_no_effect(azure: Azure) -> None:
    parts = urlsplit(azure.endpoint)
    path = f"/subscriptions/{azure.subscription}/resourcegroups/cut?api-version=2025-04-01"
    head = (
        f"PUT {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: 500\r\n"
        f'Authorization: Bearer {azure.token()}\r\n\r\n{{"location": "eastus"}}'
    )
    with (
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=180) as plain,
        azure.tls.wrap_socket(plain, server_hostname=parts.hostname) as connection,
    ):
        connection.sendall(head.encode())
        connection.shutdown(socket.SHUT_WR)
    assert groups(azure) == 0


def test_clients_without_the_certificate_authority_refuse_the_stand_in(azure: Azure) -> None:
    azure.token()
    with pytest.raises(ServiceRequestError):
        azure.client("resource", connection_verify=True).resource_groups.get(GROUP)


def test_the_stand_in_leaves_no_files() -> None:
    with stand_in() as azure:
        bundle = Path(azure.env["AZURE_CA_BUNDLE"])
        assert bundle.read_text().startswith("-----BEGIN CERTIFICATE-----")
        assert [path.stat().st_mode & 0o077 for path in bundle.parent.glob("server.pem")] == [0]
    assert not bundle.parent.exists()


def test_an_error_has_the_fields_that_the_sdk_reads(azure: Azure) -> None:
    with pytest.raises(HttpResponseError) as caught:
        azure.client("resource").resource_groups.get("none")
    assert caught.value.error is not None
    assert caught.value.error.code == "ResourceGroupNotFound"
    assert headers_of(caught.value)["x-ms-request-id"]

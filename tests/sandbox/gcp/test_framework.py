"""The control API: time, faults, kills, tokens, projects and the list of calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
import requests
from google.api_core.exceptions import DeadlineExceeded
from google.auth import jwt
from google.auth.exceptions import RefreshError
from google.auth.transport.requests import Request
from google.cloud.container_v1 import ClusterManagerClient
from google.oauth2.service_account import Credentials
from requests.exceptions import ConnectionError as RequestsConnectionError

from tests.sandbox.gcp.support import NUMBER, PROJECT, SCOPE, Gcp, refused

PARENT = f"projects/{PROJECT}/locations/-"
ID = "11111111-2222-3333-4444-555555555555"
ZONES = f"/compute/v1/projects/{PROJECT}/global/operations"


def test_every_call_is_logged_with_its_permission_and_its_response(gcp: Gcp) -> None:
    gcp.gke.list_clusters(parent=PARENT)
    with refused("UNIMPLEMENTED", "no container StartIPRotation"):
        gcp.gke.start_ip_rotation(name=f"projects/{PROJECT}/locations/us-central1/clusters/c")
    gcp.rest("GET", ZONES)
    names = ("n", "service", "action", "iam_action", "status")
    lines = [tuple(line[name] for name in names[1:]) for line in gcp.calls()]
    assert lines == [
        ("container", "ListClusters", "container.clusters.list", 200),
        ("container", "StartIPRotation", "", 501),
        ("compute", "globalOperations.list", "compute.globalOperations.list", 200),
    ]


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ({"kind": "throttle"}, "RESOURCE_EXHAUSTED", "Quota exceeded"),
        ({"kind": "error", "code": "FAILED_PRECONDITION", "message": "busy"}, "FAILED_PRECONDITION", "busy"),
        ({"kind": "error", "code": "quotaExceeded", "status": 403}, "PERMISSION_DENIED", "ordered"),
        ({"kind": "5xx", "status": 500}, "INTERNAL", "ordered"),
        ({"kind": "drop"}, "UNAVAILABLE", "reset by peer"),
        ({"kind": "lost"}, "UNAVAILABLE", "reset by peer"),
    ],
)
def test_an_injected_grpc_fault_has_the_error_that_clients_expect(
    gcp: Gcp, fault: dict[str, object], code: str, words: str
) -> None:
    gcp.control(faults=[{**fault, "service": "container", "action": "ListClusters"}])
    with refused(code, words):
        gcp.gke.list_clusters(parent=PARENT, retry=None)
    gcp.gke.list_clusters(parent=PARENT, retry=None)


def test_a_hanging_response_lasts_until_the_client_times_out(gcp: Gcp) -> None:
    gcp.control(faults=[{"kind": "timeout"}])
    with pytest.raises(DeadlineExceeded):
        gcp.gke.list_clusters(parent=PARENT, retry=None, timeout=0.2)


def test_injected_rest_faults_have_the_messages_of_the_service(gcp: Gcp) -> None:
    gcp.control(faults=[{"kind": "throttle", "service": "compute"}])
    status, document = gcp.rest("GET", ZONES)
    assert (status, document["error"]["errors"][0]["reason"]) == (403, "rateLimitExceeded")
    gcp.control(faults=[{"kind": "drop", "service": "compute"}])
    with pytest.raises(RequestsConnectionError):
        gcp.rest("GET", ZONES)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_is_killed_at_the_given_call(gcp: Gcp, when: str) -> None:
    program = (
        "import grpc, os, sys\nfrom google.cloud.container_v1 import ClusterManagerClient as C\n"
        "channel = grpc.insecure_channel(os.environ['GOOGLE_CLOUD_GRPC_ENDPOINT'])\n"
        "gke = C(transport=C.get_transport_class('grpc')(channel=channel))\nprint('ready', flush=True)\n"
        f"sys.stdin.readline()\n[gke.list_clusters(parent={PARENT!r}) for _ in range(9)]"
    )
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", program]
    environment = {**os.environ, **gcp.env}
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        gcp.control(kill={"pid": process.pid, "call": 2, "when": when, "service": "container"})
        process.communicate("go\n", timeout=180)
    assert process.returncode == -signal.SIGKILL
    assert [line["status"] for line in gcp.calls()] == [200, f"killed {when}"]


def test_a_valid_token_is_required(gcp: Gcp) -> None:
    for headers, text in (
        ({}, "missing required authentication"),
        ({"Authorization": "Bearer stolen"}, "invalid authentication"),
    ):
        answer = requests.get(f"{gcp.endpoint}{ZONES}", headers=headers, timeout=180)
        assert (answer.status_code, text in answer.json()["error"]["message"]) == (401, True)
    channel = grpc.insecure_channel(gcp.env["GOOGLE_CLOUD_GRPC_ENDPOINT"])
    with channel:
        gke = ClusterManagerClient(
            transport=ClusterManagerClient.get_transport_class("grpc")(channel=channel)
        )
        with refused("UNAUTHENTICATED"):
            gke.list_clusters(parent=PARENT, metadata=[("authorization", "Bearer stolen")])
        token = gcp.credentials.token
        gke.list_clusters(parent=PARENT, metadata=[("authorization", f"Bearer {token}")])


def test_a_self_signed_token_is_accepted(gcp: Gcp) -> None:
    file = gcp.env["GOOGLE_APPLICATION_CREDENTIALS"]
    signed = jwt.Credentials.from_service_account_file(file, audience="https://compute.googleapis.com/")
    signed.refresh(Request())
    headers = {"Authorization": f"Bearer {signed.token.decode()}"}
    assert requests.get(f"{gcp.endpoint}{ZONES}", headers=headers, timeout=180).status_code == 200


def test_a_foreign_key_gets_no_token(gcp: Gcp) -> None:
    document = json.loads(Path(gcp.env["GOOGLE_APPLICATION_CREDENTIALS"]).read_text())
    other = {**document, "client_email": f"nobody@{PROJECT}.iam.gserviceaccount.com"}
    credentials = Credentials.from_service_account_info(other, scopes=[SCOPE])
    with pytest.raises(RefreshError, match="account not found"):
        credentials.refresh(Request())


def test_a_missing_project_has_the_error_of_each_service(gcp: Gcp) -> None:
    status, document = gcp.rest("GET", "/compute/v1/projects/nowhere/global/operations")
    assert (status, document["error"]["errors"][0]["reason"]) == (404, "notFound")
    with refused("PERMISSION_DENIED", "resource project nowhere", reason="CONSUMER_INVALID"):
        gcp.gke.list_clusters(parent="projects/nowhere/locations/-")


def test_a_disabled_api_is_reported_with_its_activation_url(gcp: Gcp) -> None:
    gcp.control(apis={"container.googleapis.com": False, "compute.googleapis.com": False})
    page = (
        f"https://console.developers.google.com/apis/api/container.googleapis.com/overview?project={NUMBER}"
    )
    with refused("PERMISSION_DENIED", page, reason="SERVICE_DISABLED"):
        gcp.gke.list_clusters(parent=PARENT)
    status, document = gcp.rest("GET", ZONES)
    assert (status, document["error"]["errors"][0]["reason"]) == (403, "accessNotConfigured")
    gcp.control(apis={"container.googleapis.com": True})
    gcp.gke.list_clusters(parent=PARENT)


def test_a_project_without_billing_or_pending_deletion_is_refused(gcp: Gcp) -> None:
    gcp.control(project={"billing": False})
    with refused("PERMISSION_DENIED", "requires billing", reason="BILLING_DISABLED"):
        gcp.gke.list_clusters(parent=PARENT)
    gcp.control(project={"billing": True, "state": "DELETE_REQUESTED"})
    with refused("PERMISSION_DENIED", "has been deleted"):
        gcp.gke.list_clusters(parent=PARENT)


def test_a_misspelt_query_parameter_is_refused(gcp: Gcp) -> None:
    status, document = gcp.rest("GET", f"{ZONES}?pagesize=3")
    assert (status, 'Unknown name "pagesize"' in document["error"]["message"]) == (400, True)


def test_a_repeated_compute_request_returns_its_operation(gcp: Gcp) -> None:
    networks = gcp.compute("Networks")

    def insert(name: str, request: str) -> str:
        made = {"name": name, "auto_create_subnetworks": False}
        sent = {"project": PROJECT, "network_resource": made, "request_id": request}
        return str(networks.insert_unary(request=sent).name)

    first = insert("net", ID)
    assert insert("net", ID) == first
    operation = gcp.compute("GlobalOperations").get(project=PROJECT, operation=first)
    assert (operation.client_operation_id, operation.status.name) == (ID, "RUNNING")
    for wrong in ("no-uuid", "00000000-0000-0000-0000-000000000000"):
        with refused("400", "requestId"):
            insert("other", wrong)
    gcp.advance(60)
    with refused("409", "already exists"):
        insert("net", ID.replace("1", "2"))
    found = gcp.compute("GlobalOperations").list(
        request={"project": PROJECT, "filter": f'operationType = "insert" AND clientOperationId = "{ID}"'}
    )
    assert [(each.name, each.status.name) for each in found] == [(first, "DONE")]


def test_a_body_is_validated_by_the_message_of_the_sdk(gcp: Gcp) -> None:
    path = f"/compute/v1/projects/{PROJECT}/global/networks"
    for body, words in (
        ({"name": "net", "mut": 1460}, 'no field named "mut"'),
        ({"name": "net", "mtu": "wide"}, "mtu"),
        ({"name": "net", "networkFirewallPolicyEnforcementOrder": "SOMETIME"}, "Must be one of"),
        (["net"], "Root element must be a message"),
    ):
        status, document = gcp.rest("POST", path, body)
        assert (status, words in document["error"]["message"]) == (400, True), document


def test_virtual_time_has_a_speed_and_can_be_advanced(gcp: Gcp) -> None:
    before = gcp.control(speed=0.001)["virtual_time"]
    after = gcp.control(advance_s=3600)["virtual_time"]
    assert 3600 <= after - before < 3601
    assert gcp.env["CLOUDREC_SANDBOX_SPEED"] == "60"


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"sped": 3}, "unknown: sped; there are: "),
        ({"durations": {"moon": 2}}, "unknown duration 'moon'"),
        ({"faults": [{"kind": "flood"}]}, "unknown kind of fault 'flood'"),
        ({"apis": {"moon.googleapis.com": True}}, "unknown API moon.googleapis.com"),
        ({"project": {"owner": "me"}}, "a project has no owner"),
        ({"gke_pool_operations": 0}, "gke_pool_operations 0 is below 1"),
        ({"gke_upgrade": {"cluster": "none"}}, "there is no cluster 'none'"),
        ({"lustre": {"gib": 3}}, "lustre has no gib"),
    ],
)
def test_an_invalid_control_request_is_refused(gcp: Gcp, wishes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gcp.control(**wishes)


def test_the_key_file_is_deleted_with_the_stand_in() -> None:
    words = [sys.executable, "-m", "cloudrec_sandbox", "gcp"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        key = Path(json.loads(process.stdout.readline())["env"]["GOOGLE_APPLICATION_CREDENTIALS"])
        assert key.stat().st_mode & 0o077 == 0
        process.terminate()
        assert process.wait(300) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert not key.exists()

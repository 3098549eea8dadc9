"""The control API: time, faults, kills, the list of calls and the inventory."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from tests.sandbox.aws.support import CONFIG, Aws, refused

ONE_TRY = CONFIG.merge(Config(retries={"mode": "standard", "total_max_attempts": 1}))


def vpcs(aws: Aws) -> int:
    return sum(entry.startswith("ec2:vpc:") for entry in aws.state())


def test_a_reset_restores_an_empty_account(aws: Aws) -> None:
    aws.client("ec2").create_vpc(CidrBlock="10.0.0.0/16")
    aws.client("kms").create_key()
    aws.client("s3").create_bucket(Bucket="bucket")
    assert [entry.rpartition(":")[0] for entry in aws.state()] == ["ec2:vpc", "kms:key", "s3:bucket"]
    aws.control(reset=True)
    assert (aws.state(), aws.pending(), aws.calls()) == ([], [], [])


def test_every_call_is_logged_with_its_permission_and_its_response(aws: Aws) -> None:
    aws.client("s3").create_bucket(Bucket="bucket")
    aws.client("s3").list_objects_v2(Bucket="bucket")
    with refused("NotImplemented", "no ec2 CreateFpgaImage"):
        aws.client("ec2").create_fpga_image(InputStorageLocation={"Bucket": "b", "Key": "k"})
    names = ("n", "service", "action", "iam_action", "status")
    assert [tuple(line[name] for name in names) for line in aws.calls()] == [
        (1, "s3", "CreateBucket", "s3:CreateBucket", 200),
        (2, "s3", "ListObjectsV2", "s3:ListBucket", 200),
        (3, "ec2", "CreateFpgaImage", "ec2:CreateFpgaImage", 501),
    ]
    assert [line["n"] for line in aws.calls(since=2)] == [3]


@pytest.mark.parametrize(
    ("service", "method", "code"),
    [
        ("ec2", "describe_vpcs", "RequestLimitExceeded"),
        ("iam", "list_roles", "Throttling"),
        ("eks", "list_clusters", "ThrottlingException"),
        ("s3", "list_buckets", "SlowDown"),
        ("kms", "list_keys", "ThrottlingException"),
    ],
)
def test_a_throttled_call_has_the_error_of_the_service(
    aws: Aws, service: str, method: str, code: str
) -> None:
    aws.control(faults=[{"kind": "throttle", "service": service, "skip": 1, "times": 1}])
    call = getattr(aws.client(service, ONE_TRY), method)
    call()
    with refused(code, "Rate exceeded"):
        call()
    call()


def test_a_throttled_call_is_retried_by_the_sdk(aws: Aws) -> None:
    aws.control(faults=[{"kind": "throttle", "service": "ec2", "action": "Describe.*"}])
    aws.client("ec2").describe_vpcs()
    assert [line["status"] for line in aws.calls()] == [503, 200]


def test_an_injected_error_has_its_code_status_and_message(aws: Aws) -> None:
    fault = {"kind": "error", "code": "InsufficientInstanceCapacity", "status": 500, "message": "none left"}
    aws.control(faults=[fault | {"action": "CreateVpc"}])
    with refused("InsufficientInstanceCapacity", "none left"):
        aws.client("ec2", ONE_TRY).create_vpc(CidrBlock="10.0.0.0/16")
    assert vpcs(aws) == 0


@pytest.mark.parametrize(("kind", "made"), [("lost", 1), ("drop", 0)])
def test_a_closed_connection_comes_before_or_after_the_effect(aws: Aws, kind: str, made: int) -> None:
    aws.control(faults=[{"kind": kind, "action": "CreateVpc"}])
    with pytest.raises(ConnectionClosedError):
        aws.client("ec2", ONE_TRY).create_vpc(CidrBlock="10.0.0.0/16")
    assert (vpcs(aws), aws.calls()[-1]["status"]) == (made, kind)


def test_a_hanging_response_lasts_until_the_client_times_out(aws: Aws) -> None:
    aws.control(faults=[{"kind": "timeout", "action": "CreateVpc"}])
    hasty = aws.client("ec2", ONE_TRY.merge(Config(read_timeout=0.2)))
    with pytest.raises(ReadTimeoutError):
        hasty.create_vpc(CidrBlock="10.0.0.0/16")
    assert vpcs(aws) == 0


@pytest.mark.parametrize(("when", "made"), [("before", 1), ("after", 2)])
def test_a_process_is_killed_at_the_given_call(aws: Aws, when: str, made: int) -> None:
    program = (
        "import boto3, sys\nec2 = boto3.client('ec2')\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        "[ec2.create_vpc(CidrBlock='10.0.0.0/16') for _ in range(9)]"
    )
    words = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=aws.env, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        aws.control(kill={"pid": process.pid, "call": 2, "when": when})
        process.communicate("go\n", timeout=180)
    assert process.returncode == -signal.SIGKILL
    assert vpcs(aws) == made


def test_virtual_time_has_a_speed_and_can_be_advanced(aws: Aws) -> None:
    before = aws.control(speed=0.001)["virtual_time"]
    after = aws.control(advance_s=3600)["virtual_time"]
    assert 3600 <= after - before < 3601
    assert aws.env["CLOUDREC_SANDBOX_SPEED"] == "60"


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"sped": 3}, "unknown: sped; there are: "),
        ({"speed": 0}, "speed 0 is not above 0"),
        ({"durations": {"moon": 2}}, "unknown duration 'moon'"),
        ({"faults": [{"kind": "flood"}]}, "unknown kind of fault 'flood'"),
        ({"faults": [{"kind": "drop", "count": 2}]}, "a fault has no count"),
        ({"kill": {"pid": 1, "call": 1, "when": "after"}}, "pid is 1"),
        ({"quotas": {"ec2/L-0": 1}}, "unknown quota ec2/L-0"),
    ],
)
def test_an_invalid_control_request_is_refused(aws: Aws, wishes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aws.control(**wishes)


def test_a_misspelt_parameter_is_refused_unlike_in_aws(aws: Aws) -> None:
    address = urlsplit(aws.endpoint).netloc
    connection = HTTPConnection(address, timeout=180)
    head = {
        "Authorization": "AWS4-HMAC-SHA256 Credential=AKIA/20261120/us-east-1/ec2/aws4_request",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    connection.request("POST", "/", "Action=CreateVpc&Version=2016-11-15&CidrBlok=10.0.0.0/16", head)
    answer = connection.getresponse()
    assert (answer.status, b"no parameter CidrBlok" in answer.read()) == (400, True)
    connection.close()


def test_a_truncated_request_has_no_effect(aws: Aws) -> None:
    parts = urlsplit(aws.endpoint)
    head = (
        f"PUT /cut-short HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: 500\r\n"
        "Authorization: AWS4-HMAC-SHA256 Credential=x/20261121/us-east-1/s3/aws4_request\r\n\r\n<Create"
    )
    with socket.create_connection((parts.hostname, parts.port), timeout=180) as connection:
        connection.sendall(head.encode())
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert aws.client("s3").list_buckets()["Buckets"] == []

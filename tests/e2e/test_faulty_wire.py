"""`up` and `down` through a proxy that fails some requests; a user repeats the command, and nothing is left.

The seed is printed, and CLOUDREC_FAULTS_SEED repeats a run.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest

from cloudrec_sandbox.isolation import isolated
from cloudrec_sandbox.run import Rehearsal, rehearsed
from tests.standins.faults import Kind, SeededFaults

_TRIES = 6
_CODES = {0, 1, 2, 3, 4, 5, 6}
# No bit is flipped: TLS finds that on the way to a real cloud.
_KINDS: tuple[Kind, ...] = ("answer", "reset", "lose", "truncate", "drip", "twice", "html")


def _command(environment: Mapping[str, str], *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cloudrec", *words],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def _until_done(environment: Mapping[str, str], *words: str) -> list[int]:
    """Repeat a command as a user would; return its exit codes."""
    codes: list[int] = []
    while len(codes) < _TRIES:
        code, printed = _command(environment, *words)
        codes.append(code)
        assert code in _CODES, printed
        assert "Traceback" not in printed, printed
        assert "a bug in cloudrec" not in printed, printed
        if code == 0:
            return codes
    raise AssertionError(f"{words} ended with {codes}: {printed}")


def _inventory(given: Mapping[str, str]) -> dict[str, set[str]]:
    """Return what the account has, from the stand-in itself."""

    def client(service: str) -> Any:
        # The stubs have one overload for each service's name.
        make: Any = boto3.client
        return make(
            service,
            endpoint_url=given["AWS_ENDPOINT_URL"],
            region_name=given["AWS_REGION"],
            aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        )

    ec2, iam, eks = client("ec2"), client("iam"), client("eks")
    gone = {"deleted", "deleting", "terminated", "shutting-down"}
    return {
        "vpcs": {each["VpcId"] for each in ec2.describe_vpcs()["Vpcs"]},
        "groups": {each["GroupId"] for each in ec2.describe_security_groups()["SecurityGroups"]},
        "addresses": {each["AllocationId"] for each in ec2.describe_addresses()["Addresses"]},
        "templates": {
            each["LaunchTemplateId"] for each in ec2.describe_launch_templates()["LaunchTemplates"]
        },
        "volumes": {each["VolumeId"] for each in ec2.describe_volumes()["Volumes"]},
        "gateways": {
            each["NatGatewayId"]
            for each in ec2.describe_nat_gateways()["NatGateways"]
            if each["State"] not in gone
        },
        # AWS makes roles with the first cluster of an account, and keeps them.
        "roles": {
            each["RoleName"]
            for each in iam.list_roles()["Roles"]
            if not each["Path"].startswith("/aws-service-role/")
        },
        "clusters": set(eks.list_clusters()["clusters"]),
    }


def _round(folder: Path, seed: int, percent: float) -> int:
    """Bring a cluster up and down once; return how many requests failed."""
    environment = isolated(os.environ, folder / "missing")
    environment["CLOUDREC_HOME"] = str(folder / "home")
    with rehearsed(Rehearsal(name="aws", command=(), has_pods=False), environment, folder) as given:
        before = _inventory(given)
        port = urlsplit(given["AWS_ENDPOINT_URL"]).port
        assert port is not None
        with SeededFaults(port, seed=seed, percent=percent, kinds=_KINDS) as proxy:
            print(f"CLOUDREC_FAULTS_SEED={proxy.seed}")
            through = environment | given | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
            up = _until_done(through, "up", "aws", "--cluster", "wire", "--yes")
            made = _inventory(given)
            assert made["clusters"] - before["clusters"] == {"cloudrec-wire"}
            assert len(made["vpcs"] - before["vpcs"]) == 1
            down = _until_done(through, "down", "--cluster", "wire", "--yes")
            print(f"up {up}, down {down}, {len(proxy.struck)} of {len(proxy.requests)} requests failed")
            assert _inventory(given) == before, proxy.struck
            return len(proxy.struck)


def test_a_faulty_wire_to_aws_leaves_nothing_twice_and_nothing_behind(tmp_path: Path) -> None:
    assert _round(tmp_path, seed=1, percent=5) > 0


@pytest.mark.soak
def test_many_faulty_wires_to_aws_leave_nothing_twice_and_nothing_behind(tmp_path: Path) -> None:
    struck = 0
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        struck += _round(folder, seed=secrets.randbelow(1_000_000), percent=5)
    assert struck

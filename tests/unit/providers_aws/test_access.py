"""The kubeconfig and the token of Kubernetes clients."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cloudrec.kubernetes.manifests.environment import run_environment
from cloudrec.kubernetes.manifests.placement import resources
from cloudrec.providers.aws import access, token
from cloudrec.providers.aws.api.client import Aws
from cloudrec.providers.aws.offers import KNOWN
from cloudrec.providers.base.access import cluster_target
from cloudrec.transport import profile_of, profiles
from tests.unit.kubernetes_manifests.support_matrix import workload

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "very-secret",
    "AWS_REGION": "eu-west-1",
}
CLUSTER: Any = {
    "name": "cloudrec-demo",
    "endpoint": "https://0123.gr7.eu-west-1.eks.amazonaws.com",
    "certificateAuthority": {"data": "Q0E="},
}


def signed_url(made: str) -> str:
    plain = made.removeprefix("k8s-aws-v1.")
    return base64.urlsafe_b64decode(plain + "=" * (-len(plain) % 4)).decode()


def test_a_token_is_a_signed_sts_request_that_names_the_cluster() -> None:
    made = token.token(Aws(ENVIRONMENT), "cloudrec-demo")
    assert made.startswith("k8s-aws-v1.")
    assert "=" not in made
    url = urlsplit(signed_url(made))
    assert url.hostname == "sts.eu-west-1.amazonaws.com"
    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert asked["Action"] == "GetCallerIdentity"
    assert asked["X-Amz-Expires"] == "60"
    assert asked["X-Amz-SignedHeaders"] == "host;x-k8s-aws-id"
    assert "very-secret" not in signed_url(made)


def run_token(**environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run(
        [sys.executable, "-m", "cloudrec.providers.aws.token", "--cluster", "c", "--region", "eu-west-1"],
        env={
            **kept,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_the_command_prints_a_credential_that_expires_before_the_token() -> None:
    done = run_token(**ENVIRONMENT)
    assert done.returncode == 0
    made = json.loads(done.stdout)
    assert (made["apiVersion"], made["kind"]) == ("client.authentication.k8s.io/v1", "ExecCredential")
    ends = datetime.fromisoformat(made["status"]["expirationTimestamp"])
    assert 12 * 60 < (ends - datetime.now(UTC)).total_seconds() < 15 * 60  # before EKS refuses the token


def test_without_credentials_the_command_exits_with_3_and_the_reason() -> None:
    done = run_token()
    assert (done.returncode, done.stdout) == (3, "")
    assert "credentials" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_kubeconfig_has_one_cluster_and_no_secret() -> None:
    config = access.kubeconfig_of(CLUSTER, "eu-west-1", {**ENVIRONMENT, "AWS_PROFILE": "team"})
    assert config["current-context"] == "cloudrec-demo"
    assert config["clusters"][0]["cluster"] == {
        "server": CLUSTER["endpoint"],
        "certificate-authority-data": "Q0E=",
    }
    command = config["users"][0]["user"]["exec"]
    assert command["args"][:3] == ["-P", "-m", "cloudrec.providers.aws.token"]
    assert command["env"] == [{"name": "AWS_PROFILE", "value": "team"}]
    assert "very-secret" not in json.dumps(config)


def test_a_pod_requests_all_adapters_and_huge_pages_only_if_they_exist() -> None:
    assert profile_of("efa", "p5.48xlarge").pod_resources(8) == {
        "nvidia.com/gpu": "8",
        "vpc.amazonaws.com/efa": "32",
        "hugepages-2Mi": "5120Mi",
    }
    assert profile_of("tcp", "g5.xlarge").pod_resources(1) == {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize(("machine", "pages"), [("p5.4xlarge", "1760Mi"), ("g5.8xlarge", "3520Mi")])
def test_a_pod_of_a_small_machine_requests_the_huge_pages_of_its_row(machine: str, pages: str) -> None:
    row = KNOWN[machine]
    target = cluster_target(
        kubeconfig=Path("kubeconfig"),
        context="c",
        account="n/a",
        fabric=row.fabric,
        instance_type=machine,
        gpus=row.gpus,
        cards=row.cards,
        huge_pages_mib=row.hugepages_2mi_mib,
    )
    profile = profile_of("efa", machine)
    requests, limits = resources(workload(nodes=1, min_nodes=1), target, profile)
    assert (requests["hugepages-2Mi"], (limits or {})["hugepages-2Mi"]) == (pages, pages)
    variables = {
        each["name"]: each.get("value")
        for each in run_environment(workload(nodes=1, min_nodes=1), target, profile, {})
    }
    assert variables["CLOUDREC_HUGEPAGES_MIB"] == pages.removesuffix("Mi")


PROFILES = {each.name: each for each in profiles()}


@pytest.mark.parametrize("name", [name for name, each in KNOWN.items() if each.profile])
def test_every_type_names_a_profile_of_its_fabric_with_the_number_of_its_adapters(name: str) -> None:
    hardware = KNOWN[name]
    found = PROFILES[hardware.profile]
    assert (found, found.fabric) == (profile_of(hardware.fabric, name), hardware.fabric)
    if found.name != "aws-g-efa":  # of several machines; the target has the number of adapters
        assert found.cards == found.expects.minimum_cards == hardware.cards

"""A cluster's API admits the principals with an access entry, and each may do what its entry allows."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import boto3
import pytest

from cloudrec.providers.aws.api.client import Aws
from cloudrec.providers.aws.token import token
from tests.conformance.support_clouds import Cloud, Site, stand_in, until

NAME = "cloudrec-conformance"
POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKS{}Policy"
EVERYWHERE = {"type": "cluster"}


@dataclass(frozen=True, kw_only=True)
class Api:
    """The API server of a cluster in the stand-in's account."""

    cloud: Cloud
    server: Cloud

    def client(self, service: str) -> Any:
        """A client with the account owner's keys."""
        make: Any = boto3.client  # whatever the service
        return make(service, endpoint_url=self.cloud.env["AWS_ENDPOINT_URL"], region_name="us-east-1")

    def status(self, keys: Mapping[str, str], path: str = "/api/v1/namespaces", body: object = None) -> int:
        """The HTTP status of a call with a token that these keys sign."""
        signed = token(Aws({**self.cloud.env, **keys}, "us-east-1"), NAME)
        request = Request(  # noqa: S310 - https
            self.server._announcement["endpoints"]["kubernetes"] + path,
            headers={"Authorization": f"Bearer {signed}", "Content-Type": "application/json"},
            data=None if body is None else json.dumps(body).encode(),
        )
        trust = ssl.create_default_context(cafile=self.server._announcement["certificate_authority"])
        try:
            with urlopen(request, context=trust) as answer:  # noqa: S310 - https
                return int(answer.status)
        except HTTPError as error:
            return error.code

    def user(self, name: str) -> tuple[str, dict[str, str]]:
        """The ARN and the keys of a new IAM user."""
        iam = self.client("iam")
        arn = iam.create_user(UserName=name)["User"]["Arn"]
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return arn, {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder: Path = tmp_path_factory.mktemp("linked")
    with pytest.MonkeyPatch.context() as patch, stand_in("kubernetes") as server, stand_in("aws") as cloud:
        patch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
        for variable, value in cloud.env.items():  # for the kubeconfig's token command
            patch.setenv(variable, value)
        cloud.reset()
        cloud.control(kubernetes=server._announcement)
        Site(cloud, folder).up()
        yield Api(cloud=cloud, server=server)


def eventually(look: Callable[[], int], status: int) -> None:
    """Wait until a call has this status: the API server learns of a change a moment later."""
    until(lambda: look() == status, f"status {status}")


def test_the_creator_is_an_administrator(api: Api) -> None:
    assert api.status({}) == 200
    assert api.status({}, body={"metadata": {"name": "of-the-creator"}}) == 201


def test_a_user_without_an_entry_is_not_authenticated_and_one_without_a_policy_not_authorized(
    api: Api,
) -> None:
    arn, keys = api.user("ann")
    assert api.status(keys) == 401
    eks = api.client("eks")
    eks.create_access_entry(clusterName=NAME, principalArn=arn)
    eventually(lambda: api.status(keys), 403)
    eks.associate_access_policy(
        clusterName=NAME, principalArn=arn, policyArn=POLICY.format("AdminView"), accessScope=EVERYWHERE
    )
    eventually(lambda: api.status(keys), 200)
    assert api.status(keys, body={"metadata": {"name": "of-ann"}}) == 403
    eks.associate_access_policy(
        clusterName=NAME, principalArn=arn, policyArn=POLICY.format("ClusterAdmin"), accessScope=EVERYWHERE
    )
    eventually(lambda: api.status(keys, body={"metadata": {"name": "of-ann"}}), 201)
    eks.delete_access_entry(clusterName=NAME, principalArn=arn)
    eventually(lambda: api.status(keys), 401)


def test_the_entry_of_a_role_admits_its_sessions(api: Api) -> None:
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = api.client("iam").create_role(RoleName="team", AssumeRolePolicyDocument=document)["Role"]
    found = api.client("sts").assume_role(RoleArn=role["Arn"], RoleSessionName="ann")["Credentials"]
    keys = {
        "AWS_ACCESS_KEY_ID": found["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"],
        "AWS_SESSION_TOKEN": found["SessionToken"],
    }
    assert api.status(keys) == 401
    api.cloud.control(advance_s=60)  # IAM is eventually consistent: EKS does not see a new role yet
    eks = api.client("eks")
    eks.create_access_entry(clusterName=NAME, principalArn=role["Arn"])
    eks.associate_access_policy(
        clusterName=NAME,
        principalArn=role["Arn"],
        policyArn=POLICY.format("AdminView"),
        accessScope=EVERYWHERE,
    )
    eventually(lambda: api.status(keys), 200)

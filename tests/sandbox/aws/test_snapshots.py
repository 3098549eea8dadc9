"""Snapshots: an account is restored with its resources, its time and its operations."""

from __future__ import annotations

import pytest

from tests.sandbox.aws.support import Aws, refused
from tests.sandbox.aws.support_eks import active_cluster, create_nodegroup, ground, nodegroup


def test_a_snapshot_restores_an_account_with_its_operations(aws: Aws) -> None:
    base = ground(aws)
    active_cluster(aws, base)
    create_nodegroup(aws, base)
    s3, ec2 = aws.client("s3"), aws.client("ec2")
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="key", Body=b"text")
    aws.client("ecr").create_repository(repositoryName="images")
    aws.client("ssm").put_parameter(Name="/a", Value="b", Type="String")
    aws.advance(100)
    before, moment = aws.state(), aws.control()["virtual_time"]
    aws.ask("POST", "/save", {"name": "half"})
    for _ in range(2):
        s3.delete_object(Bucket="bucket", Key="key")
        s3.delete_bucket(Bucket="bucket")
        ec2.create_vpc(CidrBlock="10.9.0.0/16")
        aws.advance(80)
        assert nodegroup(aws)["status"] == "ACTIVE"
        aws.ask("POST", "/restore", {"name": "half"})
        assert (aws.state(), nodegroup(aws)["status"]) == (before, "CREATING")
        assert abs(aws.control()["virtual_time"] - moment) < 1
        assert s3.get_object(Bucket="bucket", Key="key")["Body"].read() == b"text"
        assert aws.client("ssm").get_parameter(Name="/a")["Parameter"]["Value"] == "b"
    with refused("DependencyViolation"):
        ec2.delete_vpc(VpcId=base.vpc)
    aws.advance(80)
    assert nodegroup(aws)["status"] == "ACTIVE"


def test_a_missing_snapshot_cannot_be_restored(aws: Aws) -> None:
    with pytest.raises(ValueError, match="nothing was saved as 'moon'"):
        aws.ask("POST", "/restore", {"name": "moon"})

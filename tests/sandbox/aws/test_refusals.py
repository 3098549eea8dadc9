"""What EKS, IAM, KMS, VPC endpoints and S3 refuse or leave out, as AWS does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sandbox.aws.support import ZONES, Aws, refused, trust
from tests.sandbox.aws.support_ec2 import make_net
from tests.sandbox.aws.support_eks import active_cluster, create_cluster, ground

ACCOUNT = "arn:aws:iam::123456789012"


@pytest.mark.parametrize("block", ["10.0.0.0/8", "10.1.0.128/27", "192.168.1.0/24", "172.31.0.1/32"])
def test_public_access_is_not_given_to_private_addresses(aws: Aws, block: str) -> None:
    base = ground(aws)
    config = {"endpointPublicAccess": True, "publicAccessCidrs": [block]}
    with refused("InvalidParameterException", f"not allowed in publicAccessCidrs: [{block}]"):
        create_cluster(aws, base, resourcesVpcConfig=config)


@pytest.mark.parametrize(
    ("addon", "values", "words"),
    [
        ("vpc-cni", {"bogus": 1}, "$.bogus: is not defined in the schema"),
        ("vpc-cni", {"enableNetworkPolicy": True}, "$.enableNetworkPolicy: boolean found, string expected"),
        ("coredns", {"replicas": 3}, "$.replicas: is not defined in the schema"),
        ("aws-mountpoint-s3-csi-driver", {"node": {"tolerateAllTaints": "yes"}}, "boolean expected"),
        ("eks-node-monitoring-agent", {"dcgmAgent": {"taints": []}}, "$.dcgmAgent.taints: is not defined"),
        ("kube-proxy", [], "$: array found, object expected"),
    ],
)
def test_an_addons_configuration_must_fit_its_schema(
    aws: Aws, addon: str, values: object, words: str
) -> None:
    active_cluster(aws, ground(aws))
    eks = aws.client("eks")
    wish = {"clusterName": "one", "addonName": addon, "configurationValues": json.dumps(values)}
    with refused("InvalidParameterException", "Json schema validation failed with error", words):
        eks.create_addon(**wish)
    eks.create_addon(clusterName="one", addonName=addon)
    aws.advance(60)
    with refused("InvalidParameterException", words):
        eks.update_addon(**wish)


def test_the_schema_of_an_addon_can_be_read(aws: Aws) -> None:
    eks = aws.client("eks")
    version = eks.describe_addon_versions(addonName="vpc-cni")["addons"][0]["addonVersions"][0][
        "addonVersion"
    ]
    found = eks.describe_addon_configuration(addonName="vpc-cni", addonVersion=version)
    assert "enableNetworkPolicy" in json.loads(found["configurationSchema"])["properties"]


def test_trust_in_an_unknown_service_is_refused(aws: Aws) -> None:
    iam = aws.client("iam")
    with refused("MalformedPolicyDocument", '"SERVICE":"nonsense.amazonaws.com"'):
        iam.create_role(RoleName="x", AssumeRolePolicyDocument=trust("nonsense"))
    iam.create_role(RoleName="x", AssumeRolePolicyDocument=trust("ec2"))
    with refused("MalformedPolicyDocument"):
        iam.update_assume_role_policy(RoleName="x", PolicyDocument=trust("ec3"))


def key_policy(principal: str, action: str) -> str:
    statement = {"Effect": "Allow", "Principal": {"AWS": principal}, "Action": action, "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def test_a_key_policy_that_locks_its_author_out_is_refused(aws: Aws) -> None:
    kms = aws.client("kms")
    whole, reader = key_policy(f"{ACCOUNT}:root", "kms:*"), key_policy(f"{ACCOUNT}:root", "kms:Decrypt")
    with refused("MalformedPolicyDocumentException", "will not allow you to update the key policy"):
        kms.create_key(Policy=reader)
    key = kms.create_key(Policy=whole)["KeyMetadata"]["KeyId"]
    with refused("MalformedPolicyDocumentException", "in the future"):
        kms.put_key_policy(KeyId=key, PolicyName="default", Policy=reader)
    kms.put_key_policy(KeyId=key, PolicyName="default", Policy=reader, BypassPolicyLockoutSafetyCheck=True)


def test_endpoints_exist_for_certain_services_in_certain_zones(aws: Aws) -> None:
    net = make_net(aws)

    def create(service: str, **more: Any) -> None:
        net.ec2.create_vpc_endpoint(
            VpcId=net.vpc, ServiceName=f"com.amazonaws.us-east-1.{service}", PrivateDnsEnabled=False, **more
        )

    interface = {"VpcEndpointType": "Interface", "SubnetIds": net.subnets}
    with refused("InvalidServiceName", "nonsense"):
        create("nonsense", **interface)
    with refused("InvalidServiceName", "ec2"):
        create("ec2", VpcEndpointType="Gateway")
    aws.control(endpoint_zones_missing={"eks-auth": [ZONES[1]]})
    with refused("InvalidParameter", "eks-auth does not support the availability zone of the subnet"):
        create("eks-auth", **interface)
    name = "com.amazonaws.us-east-1.eks-auth"
    (row,) = net.ec2.describe_vpc_endpoint_services(ServiceNames=[name])["ServiceDetails"]
    assert ZONES[0] in row["AvailabilityZones"]
    assert ZONES[1] not in row["AvailabilityZones"]
    create("eks-auth", **interface | {"SubnetIds": net.subnets[:1]})
    with refused("InvalidServiceName"):
        net.ec2.describe_vpc_endpoint_services(ServiceNames=["com.amazonaws.us-east-1.nonsense"])


def test_buckets_are_listed_by_region(aws: Aws) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="here")
    assert [row["Name"] for row in s3.list_buckets(BucketRegion="us-east-1")["Buckets"]] == ["here"]
    assert s3.list_buckets(BucketRegion="us-west-2")["Buckets"] == []
    assert [row["BucketRegion"] for row in s3.list_buckets()["Buckets"]] == ["us-east-1"]

"""Each role of a cluster on AWS holds what its flows use, and nothing else.

What a role holds is read from IAM, where `up` has written it; what its flows use is what the stand-in
recorded of the role's calls. `UNUSED` has what no flow here uses, with who requires it.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from cloudrec.errors import CloudrecError
from cloudrec.providers.aws.identity.policies import pod_policy
from cloudrec.providers.aws.provider import AwsProvider
from tests.contract.aws.support import Site
from tests.contract.aws.support_flows import detached, grants, lacking, pod, run
from tests.contract.aws.support_identities import ACCOUNT, OURS, REGION, AwsEstate
from tests.contract.aws.support_policies import BOUNDARY, DEPLOYER, POLICIES, allowed
from tests.contract.support_least import Found, Grant, differences, unneeded
from tests.sandbox.aws.support import refused
from tests.tallies import Tally

OWN = ("guard", "end", "pod", "cni")  # the roles with a policy of cloudrec whose programs run here
# Of each role, an action that the life of a cluster needs rarely; `make soak` takes each action.
SOME = {
    "guard": Grant(source="Pass", action="iam:PassRole"),
    "end": Grant(source="Scale", action="eks:UpdateNodegroupConfig"),
    "pod": Grant(source="Uploads", action="s3:ListBucketMultipartUploads"),
    "cni": Grant(source="Look", action="ec2:DescribeSecurityGroups"),
}
_DOCS = "https://docs.aws.amazon.com"
_AGENT = f"{_DOCS}/aws-managed-policy/latest/reference/CloudWatchAgentServerPolicy.html: no agent runs here"
_PUSH = f"{_DOCS}/AmazonECR/latest/userguide/image-push-iam.html: docker sends the layers"
# The policies of AWS that a role has as a whole, with the page that requires them.
MANAGED = {
    "cluster": {"AmazonEKSClusterPolicy": f"{_DOCS}/eks/latest/userguide/cluster-iam-role.html"},
    "node": {
        "AmazonEKSWorkerNodePolicy": f"{_DOCS}/eks/latest/userguide/create-node-role.html",
        "AmazonEC2ContainerRegistryPullOnly": f"{_DOCS}/eks/latest/userguide/create-node-role.html",
    },
    "lustre-csi": {"AmazonFSxReadOnlyAccess": f"{_DOCS}/eks/latest/userguide/fsx-csi-create.html"},
}
UNUSED = {
    "metrics": dict.fromkeys(
        (
            "cloudwatch:PutMetricData",
            "ec2:DescribeTags",
            "ec2:DescribeVolumes",
            "logs:CreateLogStream",
            "logs:DescribeLogGroups",
            "logs:DescribeLogStreams",
            "logs:PutLogEvents",
        ),
        _AGENT,
    ),
    "pusher": dict.fromkeys(
        (
            "ecr:BatchCheckLayerAvailability",
            "ecr:BatchGetImage",
            "ecr:CompleteLayerUpload",
            "ecr:InitiateLayerUpload",
            "ecr:PutImage",
            "ecr:UploadLayerPart",
        ),
        _PUSH,
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_a_role_holds_what_its_flows_use(estate: AwsEstate, tmp_path: Path, name: str) -> None:
    found = run(estate, name, tmp_path)
    assert found.said == ""
    assert found.refused == frozenset()
    assert differences(estate.identities[name].actions(), found.used, {}) == []


def test_a_run_with_a_prefix_needs_its_policy_and_stays_below_the_prefix(
    estate: AwsEstate, tmp_path: Path
) -> None:
    settings = {**estate.ours.cluster.settings, "prefix": "team/a"}
    cluster = estate.ours.cluster.model_copy(update={"settings": settings})
    document = json.dumps(pod_policy(estate.ours.provider.layout(cluster)))
    bucket, s3 = f"cloudrec-{OURS}-{ACCOUNT}-{REGION}", estate.identities["pod"].client("s3")
    with estate.enforced():
        estate.aws.client("iam").put_role_policy(
            RoleName=estate.role("pod"), PolicyName="cloudrec", PolicyDocument=document
        )
        assert pod(estate, tmp_path, "team/a/runs/r") == ""
        for prefix in ("", "team", "team/ab/", "runs/"):
            with refused("AccessDenied", "s3:ListBucket"):
                s3.list_objects_v2(Bucket=bucket, Prefix=prefix)
        with refused("AccessDenied", "s3:GetObject"):
            s3.get_object(Bucket=bucket, Key="runs/r/data")


def test_every_role_is_judged(estate: AwsEstate) -> None:
    assert {*OWN, *MANAGED, "metrics"} == estate.identities.keys()
    assert differences(estate.identities["metrics"].actions(), (), UNUSED["metrics"]) == []


def test_the_roles_have_no_other_policies_of_aws(estate: AwsEstate) -> None:
    iam = estate.aws.client("iam")
    found = {
        name: {
            row["PolicyName"]
            for row in iam.list_attached_role_policies(RoleName=estate.role(name))["AttachedPolicies"]
        }
        for name in estate.identities
    }
    assert {name: names for name, names in found.items() if names} == {
        name: set(policies) for name, policies in MANAGED.items()
    }


def test_the_boundary_allows_what_some_role_holds_and_no_more(estate: AwsEstate) -> None:
    held = {action for identity in estate.identities.values() for action in identity.actions()}
    bounded = allowed(BOUNDARY)
    assert [each for each in sorted(bounded) if not any(fnmatchcase(each, action) for action in held)] == []
    own = {action for name in (*OWN, "metrics") for action in estate.identities[name].actions()}
    assert own - bounded == set()


@pytest.mark.parametrize("policy", MANAGED["node"])
def test_a_node_needs_each_policy_of_aws(estate: AwsEstate, tmp_path: Path, policy: str) -> None:
    assert run(estate, "node", tmp_path).said == ""
    with detached(estate, "node", policy):
        assert run(estate, "node", tmp_path).said


@pytest.mark.parametrize("name", OWN)
def test_a_missing_action_of_a_role_is_named(estate: AwsEstate, tmp_path: Path, name: str) -> None:
    with lacking(estate, name, SOME[name]):
        assert unneeded([SOME[name]], lambda _: run(estate, name, tmp_path)) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", OWN)
def test_each_action_of_a_role_is_needed(estate: AwsEstate, tmp_path: Path, name: str, tally: Tally) -> None:
    def without(grant: Grant) -> Found:
        with lacking(estate, name, grant):
            return run(estate, name, tmp_path)

    held = grants(estate, name)
    assert unneeded(held, without) == []
    tally(f"each of {len(held)} actions of AWS's role {name} is needed")


def login(site: Site, keys: dict[str, str]) -> str:
    """What `image push` says before it calls docker; empty if it gets a password."""
    try:
        AwsProvider(site.home, {**site.aws.env, **keys}).registry(site.cluster)
    except CloudrecError as error:
        return error.message
    return ""


def test_a_deployer_who_pushes_images_needs_what_docker_does_not_use(estate: AwsEstate) -> None:
    aws, iam = estate.aws, estate.aws.client("iam")
    held = allowed("pusher-policy")
    with estate.enforced():
        who = iam.create_user(UserName="pusher")["User"]["Arn"]
        key = iam.create_access_key(UserName="pusher")["AccessKey"]
        keys = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        for name in DEPLOYER:
            document = json.dumps(POLICIES[name])
            iam.put_user_policy(UserName="pusher", PolicyName=name, PolicyDocument=document)
        assert held - UNUSED["pusher"].keys() == {"ecr:GetAuthorizationToken"}
        assert "ecr:GetAuthorizationToken" in login(estate.ours, keys)
        document = json.dumps(POLICIES["pusher-policy"])
        iam.put_user_policy(UserName="pusher", PolicyName="pusher", PolicyDocument=document)
        aws.control(decisions={})
        assert login(estate.ours, keys) == ""
        used = {*aws.ask("GET", "")["decisions"][who]["used"]}
        assert differences(held, used & held, UNUSED["pusher"]) == []
    assert held & allowed(*DEPLOYER) == set()

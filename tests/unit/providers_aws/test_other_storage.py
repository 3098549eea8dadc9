"""What a cluster on AWS describes if its runs use the bucket of another cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloudrec.providers.aws import preflight
from cloudrec.providers.aws.identity import encryption
from cloudrec.providers.aws.identity.policies import guard_policy, pod_policy
from cloudrec.providers.aws.layout import AwsLayout
from cloudrec.providers.aws.storage import storage
from cloudrec.spec.models import SharedStorageSpec
from tests.unit.providers_aws.support import layout

ARN = "arn:aws:kms:eu-west-1:123456789012:key/k"
BUCKET = "arn:aws:s3:::b"


def sharing(*, key: str = "alias/cloudrec-first", managed: bool = True, **settings: Any) -> AwsLayout:
    shared = SharedStorageSpec(cluster="first", region="eu-west-1", bucket="b", prefix="team/a", key=key)
    own = layout(**settings)
    more = {"storage_of": "first", "storage": shared, "managed": managed}
    return replace(own, cluster=own.cluster.model_copy(update=more))


def statements(document: Any) -> dict[str, Any]:
    return {each["Sid"]: each for each in document["Statement"]}


def test_it_has_no_bucket_and_a_key_that_holds_no_data() -> None:
    given = sharing()
    assert (storage.resources(given), given.storage) == ([], "s3://b/team/a")
    (key,) = encryption.resources(given)
    (own,) = encryption.resources(layout())
    assert (key.holds_data, own.holds_data) == (False, True)
    assert key.tags.keys() - own.tags.keys() == {encryption.TAG_DATA}


@pytest.mark.parametrize("key", ["alias/cloudrec-first", ARN])
def test_runs_and_keeper_may_use_the_key_of_the_bucket_in_its_region_only(key: str) -> None:
    given = sharing(key=key, kms_key="arn:aws:kms:us-east-1:123456789012:key/of-secrets")
    found = statements(pod_policy(given))["Key"]
    assert found == statements(guard_policy(given))["Key"]
    assert found["Condition"]["StringEquals"] == {"kms:ViaService": "s3.eu-west-1.amazonaws.com"}
    chinese = statements(pod_policy(replace(given, partition="aws-cn")))["Key"]
    assert chinese["Condition"]["StringEquals"] == {"kms:ViaService": "s3.eu-west-1.amazonaws.com.cn"}
    if key == ARN:
        assert found["Resource"] == ARN
    else:
        assert found["Resource"] == "arn:aws:kms:eu-west-1:123456789012:key/*"
        assert found["Condition"]["ForAnyValue:StringEquals"] == {"kms:ResourceAliases": key}


def test_the_keeper_of_a_managed_cluster_may_use_the_turns_and_no_other_object() -> None:
    found = statements(guard_policy(sharing()))
    assert found["Turns"]["Action"] == ["s3:GetObject", "s3:PutObject"]
    assert found["Turns"]["Resource"] == f"{BUCKET}/team/a/turns/*"
    assert found["ListTurns"]["Resource"] == BUCKET
    assert found["ListTurns"]["Condition"] == {
        "StringLike": {"s3:prefix": ["team/a/turns/*", "team/a/runs/*/pods/*"]}
    }
    alone = layout()
    alone = replace(alone, cluster=alone.cluster.model_copy(update={"managed": True}))
    own = statements(guard_policy(alone))
    assert own["Turns"]["Resource"].endswith("-us-east-1/turns/*")
    assert own["ListTurns"]["Condition"]["StringLike"]["s3:prefix"] == ["turns/*", "runs/*/pods/*"]
    assert not {"Turns", "ListTurns", "Key"} & statements(guard_policy(sharing(managed=False))).keys()


def test_without_nat_nodes_do_not_reach_a_bucket_in_another_region() -> None:
    found = {each.check: each for each in preflight._settings(sharing(nat=False))}
    assert "serves us-east-1; without NAT, nodes do not reach s3://b" in found["setting: storage_of"].found
    assert found["setting: storage_of"].blocks
    assert "setting: storage_of" not in {each.check for each in preflight._settings(layout(nat=False))}

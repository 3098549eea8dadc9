"""cluster.metrics: managed on AWS: CloudWatch's agent, its role and its log group."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cloudrec.app.notices.launching import check_notified
from cloudrec.errors import SpecError
from cloudrec.spec.models import ClusterSpec
from tests.contract.aws.support import Site
from tests.contract.aws.support_policies import Deployer
from tests.sandbox.aws.support import Aws

ADDON = "amazon-cloudwatch-observability"


def test_the_agent_comes_with_its_role_and_goes_with_its_logs(aws: Aws, tmp_path: Path) -> None:
    deployer = Deployer(aws, tmp_path, ttl="8h")
    deployer.act("up")
    eks, logs, iam = (aws.client(name) for name in ("eks", "logs", "iam"))
    (cluster,) = eks.list_clusters()["clusters"]
    assert ADDON not in eks.list_addons(clusterName=cluster)["addons"]
    deployer.site = Site(aws, tmp_path, ttl="8h", metrics="managed")
    deployer.act("up")
    since = len(aws.calls())
    deployer.act("up")
    assert deployer.site.changes(since) == []
    addon = eks.describe_addon(clusterName=cluster, addonName=ADDON)["addon"]
    configuration = json.loads(addon["configurationValues"])
    assert configuration["containerLogs"] == {"enabled": False}
    assert list(configuration["agent"]["config"]) == ["logs"]  # neither traces nor the logs of applications
    (given,) = eks.list_pod_identity_associations(
        clusterName=cluster, namespace="amazon-cloudwatch", serviceAccount="cloudwatch-agent"
    )["associations"]
    role = eks.describe_pod_identity_association(clusterName=cluster, associationId=given["associationId"])
    name = role["association"]["roleArn"].rpartition("/")[2]
    assert iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"] == []
    written = iam.get_role_policy(RoleName=name, PolicyName="cloudrec")["PolicyDocument"]["Statement"]
    assert [row["Resource"] for row in written if "logs:PutLogEvents" in row["Action"]] == [
        f"arn:aws:logs:us-east-1:123456789012:log-group:/aws/containerinsights/{cluster}/*"
    ]
    prefix = f"/aws/containerinsights/{cluster}/performance"
    (group,) = logs.describe_log_groups(logGroupNamePrefix=prefix)["logGroups"]
    assert group["retentionInDays"]
    assert group["kmsKeyId"]
    deployer.act("down")
    assert aws.state() == deployer.before


@pytest.mark.parametrize("provider", ["kubernetes", "local"])
def test_other_providers_refuse_it_with_what_to_use_instead(provider: str) -> None:
    with pytest.raises(SpecError, match="switches on no metrics service") as refused:
        check_notified(ClusterSpec(provider=provider, metrics="managed"))
    assert refused.value.remedy == "use cluster.metrics: prometheus"


def test_the_alarm_for_idle_gpus_is_a_valid_template() -> None:
    template = Path(__file__).parents[3] / "infra" / "aws" / "idle-gpus-alarm.yaml"
    program = Path(sys.executable).parent / "cfn-lint"
    done = subprocess.run([program, template], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")

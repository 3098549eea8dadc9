"""Metrics and notifications in manifests: off by default, and opened no wider than they need."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from cloudrec.app.guard import has_guard
from cloudrec.app.notices.launching import check_notified
from cloudrec.app.notices.references import mail_ports, secrets_of
from cloudrec.errors import SpecError
from cloudrec.kubernetes.manifests import Guarding, guard_objects, run_objects
from cloudrec.providers.kubernetes.provider import KubernetesProvider
from cloudrec.spec.models import ClusterSpec, NotifySpec
from tests.unit.kubernetes_manifests.support_matrix import FAMILIES, IMAGE, profile, workload

TARGET = FAMILIES["aws-p5"]
NOTIFY = NotifySpec(
    webhook="HOOK",
    email=("a@example.com",),
    smtp="mail.example.com:2525",
    smtp_user="bot",
    smtp_password="mail/password",  # noqa: S106 - a reference
)
FROM_PODS = {"from": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 9409}]}


def _guard(**given: Any) -> dict[str, dict[str, Any]]:
    guarding = Guarding(cluster="aws", owner="ann", image=IMAGE, **given)
    return {each["kind"]: each for each in guard_objects(TARGET, guarding)}


def _pod(guard: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = guard["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]
    return found


def test_a_keeper_without_settings_serves_nothing_and_has_no_secret() -> None:
    guard = _guard()
    (container,) = _pod(guard)["spec"]["containers"]
    assert "ingress" not in guard["NetworkPolicy"]["spec"]
    assert not [each for each in container["env"] if "valueFrom" in each or "METRICS" in each["name"]]
    assert "args" not in container


def test_a_keeper_that_notifies_has_optional_references_and_the_mail_servers_port() -> None:
    guard = _guard(secrets=secrets_of(NOTIFY), ports=mail_ports(NOTIFY))
    (container,) = _pod(guard)["spec"]["containers"]
    found = {each["name"]: each["valueFrom"] for each in container["env"] if "valueFrom" in each}
    assert found == {
        "CLOUDREC_SECRET_WEBHOOK": {
            "secretKeyRef": {"name": "cloudrec-secrets", "key": "HOOK", "optional": True}
        },
        "CLOUDREC_SECRET_SMTP_PASSWORD": {
            "secretKeyRef": {"name": "mail", "key": "password", "optional": True}
        },
    }
    ports = {port["port"] for rule in guard["NetworkPolicy"]["spec"]["egress"] for port in rule["ports"]}
    assert 2525 in ports
    # The kubelet reads the Secrets: the keeper may not.
    assert "secrets" not in [name for rule in guard["Role"]["rules"] for name in rule["resources"]]
    for each in guard.values():
        kubernetes_validate.validate(each, "1.35", strict=True)


def test_a_keeper_with_metrics_stays_and_is_scraped_by_pods_alone() -> None:
    guard = _guard(metrics_port=9409)
    pod = _pod(guard)
    (container,) = pod["spec"]["containers"]
    assert guard["NetworkPolicy"]["spec"]["ingress"] == [FROM_PODS]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == "9409"
    assert {"name": "CLOUDREC_METRICS_PORT", "value": "9409"} in container["env"]
    assert "--for" in container["args"]
    assert container["ports"] == [{"name": "metrics", "containerPort": 9409}]


@pytest.mark.parametrize("launcher", ["torchrun", "jobset", "pytorchjob", "trainjob", "rayjob"])
def test_the_pods_of_a_run_with_metrics_are_scraped(launcher: str) -> None:
    found = run_objects(launcher, workload(metrics_port=9409), TARGET, profile(TARGET))
    (policy,) = [each for each in found if each["kind"] == "NetworkPolicy"]
    assert FROM_PODS in policy["spec"]["ingress"]
    text = str(found)
    assert "'prometheus.io/scrape': 'true'" in text
    assert "{'name': 'CLOUDREC_METRICS_PORT', 'value': '9409'}" in text
    assert "{'name': 'metrics', 'containerPort': 9409}" in text  # a PodMonitor finds a port by its name


def test_an_adopted_cluster_that_notifies_has_a_keeper_and_one_without_addons_is_refused() -> None:
    adopted = ClusterSpec(name="ours", provider="kubernetes")
    provider: Any = KubernetesProvider.__new__(KubernetesProvider)
    assert not has_guard(provider, adopted)
    assert has_guard(provider, adopted.model_copy(update={"notify": NOTIFY}))
    assert has_guard(provider, adopted.model_copy(update={"metrics": "prometheus"}))
    for update in ({"notify": NOTIFY}, {"metrics": "prometheus"}):
        with pytest.raises(SpecError, match="needs the keeper"):
            check_notified(adopted.model_copy(update={**update, "addons": "none"}))

"""The defaults that an API server fills in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.rules.kinds import limits
from cloudrec_sandbox.kubernetes.rules.registry import default

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_MODES = ("configMap", "downwardAPI", "projected")
_MODE = 0o644
_TOKEN_S = 3600


def over(target: dict[str, Any], **defaults: Any) -> None:  # noqa: ANN401 - JSON
    """Set the keys that are missing."""
    for name, value in defaults.items():
        target.setdefault(name, value)


def pod_spec(spec: dict[str, Any], *, restart: str = "Always") -> None:
    """Fill in a pod's spec, in a pod or in a template."""
    over(
        spec,
        restartPolicy=restart,
        dnsPolicy="ClusterFirst",
        schedulerName="default-scheduler",
        terminationGracePeriodSeconds=30,
        securityContext={},
    )
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    # SetDefaults_PodSpec and the conversion: a negative grace, which older versions stored, is 1.
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for container in containers(spec):
        _container(container)
    for volume in spec.get("volumes") or ():
        _volume(volume)


def containers(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all containers, init containers included."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _container(container: dict[str, Any]) -> None:
    over(
        container,
        imagePullPolicy=_pull_policy(container.get("image", "")),
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        resources={},
    )
    resources = container["resources"]
    # ResourceRequirements in the API model: requests that are left out are the limits.
    for name, limit in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, limit)
    for port in container.get("ports") or ():
        over(port, protocol="TCP")
    for probe in (container[name] for name in _PROBES if name in container):
        over(probe, **_PROBE)
        if "httpGet" in probe:
            over(probe["httpGet"], scheme="HTTP", path="/")
    for each in container.get("env") or ():
        if "fieldRef" in (each.get("valueFrom") or {}):
            over(each["valueFrom"]["fieldRef"], apiVersion="v1")


def _pull_policy(image: str) -> str:
    # Container in the API model: such a tag, or none, can name another image tomorrow; a digest cannot.
    _, _, tag = image.rpartition("/")[2].partition(":")
    return "Always" if "@" not in image and tag in ("", "latest") else "IfNotPresent"


def _volume(volume: dict[str, Any]) -> None:
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}
    for name in _MODES:
        if name in volume:
            over(volume[name], defaultMode=_MODE)
    if "secret" in volume:
        over(volume["secret"], defaultMode=_MODE)
    if "hostPath" in volume:
        over(volume["hostPath"], type="")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            over(source["serviceAccountToken"], expirationSeconds=_TOKEN_S)
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        if "fieldRef" in item:
            over(item["fieldRef"], apiVersion="v1")


@default("pods")
def _pod(new: dict[str, Any]) -> None:
    pod_spec(new.setdefault("spec", {}))
    over(new["spec"], enableServiceLinks=True)


@default("jobs")
def _job(new: dict[str, Any]) -> None:
    job_spec(new.setdefault("spec", {}))


def job_spec(spec: dict[str, Any]) -> None:
    """Fill in a job's spec."""
    # JobSpec in the API model: a parallelism without completions is a work queue, where any pod's success
    # counts for all; so completions get a default only if both are left out.
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    # JobSpec in the API model: 6 retries; without a limit where each index has its own.
    whole = 2**31 - 1 if "backoffLimitPerIndex" in spec else 6
    over(spec, parallelism=1, backoffLimit=whole, completionMode="NonIndexed", suspend=False)
    over(
        spec,
        podReplacementPolicy="Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed",
        manualSelector=False,
    )
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            over(pattern, status="True")
    pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))


@default("cronjobs")
def _cron_job(new: dict[str, Any]) -> None:
    spec = new.setdefault("spec", {})
    over(
        spec,
        concurrencyPolicy="Allow",
        suspend=False,
        successfulJobsHistoryLimit=3,
        failedJobsHistoryLimit=1,
    )
    pod_spec(
        spec.setdefault("jobTemplate", {})
        .setdefault("spec", {})
        .setdefault("template", {})
        .setdefault("spec", {})
    )


@default("daemonsets", "deployments", "statefulsets", "replicasets")
def _workload(new: dict[str, Any]) -> None:
    spec = new.setdefault("spec", {})
    if new["kind"] != "DaemonSet":
        over(spec, replicas=1)
    if new["kind"] != "ReplicaSet":
        over(spec, revisionHistoryLimit=10)
    parts: dict[str, object]
    if new["kind"] == "Deployment":
        parts = {"maxUnavailable": "25%", "maxSurge": "25%"}
        over(spec, progressDeadlineSeconds=600, strategy={"type": "RollingUpdate", "rollingUpdate": parts})
    if new["kind"] == "DaemonSet":
        parts = {"maxUnavailable": 1, "maxSurge": 0}
        over(spec, updateStrategy={"type": "RollingUpdate", "rollingUpdate": parts})
    if new["kind"] == "StatefulSet":
        over(spec, podManagementPolicy="OrderedReady", updateStrategy={"type": "RollingUpdate"})
    pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))


@default("services")
def _service(new: dict[str, Any]) -> None:
    spec = new.setdefault("spec", {})
    # pkg/registry/core/service/storage/alloc.go: without a cluster IP and a selector, its endpoints are
    # another's, which may have addresses of both families.
    if spec.get("clusterIP") == "None" and not spec.get("selector"):
        over(spec, ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="RequireDualStack")
    over(
        spec,
        type="ClusterIP",
        sessionAffinity="None",
        internalTrafficPolicy="Cluster",
        ipFamilies=["IPv4"],
        ipFamilyPolicy="SingleStack",
    )
    for port in spec.get("ports") or ():
        over(port, protocol="TCP")
        if "port" in port:
            over(port, targetPort=port["port"])
    if "clusterIP" in spec:
        spec["clusterIPs"] = [spec["clusterIP"]]


@default("secrets")
def _secret(new: dict[str, Any]) -> None:
    over(new, type="Opaque")


@default("persistentvolumeclaims")
def _claim(new: dict[str, Any]) -> None:
    over(new.setdefault("spec", {}), volumeMode="Filesystem")
    over(new, status={"phase": "Pending"})


@default("persistentvolumes")
def _volume_itself(new: dict[str, Any]) -> None:
    over(new.setdefault("spec", {}), volumeMode="Filesystem", persistentVolumeReclaimPolicy="Retain")
    over(new, status={"phase": "Pending"})


@default("storageclasses")
def _storage_class(new: dict[str, Any]) -> None:
    over(new, reclaimPolicy="Delete", volumeBindingMode="Immediate")


@default("networkpolicies")
def _network_policy(new: dict[str, Any]) -> None:
    spec = new.setdefault("spec", {})
    over(spec, policyTypes=["Ingress", *(["Egress"] if spec.get("egress") else [])])
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in rule.get("ports") or ():
            over(port, protocol="TCP")


@default("customresourcedefinitions")
def _definition(new: dict[str, Any]) -> None:
    over(new.setdefault("spec", {}), conversion={"strategy": "None"})


@default("limitranges")
def _limit_range(new: dict[str, Any]) -> None:
    limits.complete((new.get("spec") or {}).get("limits"))


@default("namespaces")
def _namespace(new: dict[str, Any]) -> None:
    over(new.setdefault("spec", {}), finalizers=["kubernetes"])
    over(new, status={"phase": "Active"})
    labels = new["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = new["metadata"].get("name", "")


@default("priorityclasses")
def _priority_class(new: dict[str, Any]) -> None:
    over(new, preemptionPolicy="PreemptLowerPriority")


@default("clusterrolebindings", "rolebindings")
def _binding(new: dict[str, Any]) -> None:
    for subject in new.get("subjects") or ():
        group = "" if subject.get("kind") == "ServiceAccount" else "rbac.authorization.k8s.io"
        over(subject, **({"apiGroup": group} if group else {}))

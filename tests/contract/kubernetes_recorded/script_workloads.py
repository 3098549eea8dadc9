"""Requests about pods, Jobs and CronJobs: defaults, validation, admission."""

from __future__ import annotations

from typing import Any

from tests.contract.kubernetes_recorded.steps import (
    APPS,
    BATCH,
    CORE,
    SPACE,
    Step,
    apply,
    container,
    delete,
    get,
    job,
    obj,
    patch,
    pod,
    post,
    put,
    step,
)

PODS, JOBS, CRON = f"{CORE}/pods", f"{BATCH}/jobs", f"{BATCH}/cronjobs"
_LIMITED = "/api/v1/namespaces/limited"
_STRICT = "/api/v1/namespaces/strict"


def pods() -> list[Step]:
    """Pods and their containers."""
    fields = [
        "spec.containers.0",
        "spec.restartPolicy",
        "spec.dnsPolicy",
        "spec.tolerations",
        "spec.priority",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.qosClass",
        "spec.enableServiceLinks",
        "spec.preemptionPolicy",
        "spec.terminationGracePeriodSeconds",
    ]
    no_token = {"automountServiceAccountToken": False}

    def probe(**rest: Any) -> dict[str, Any]:
        return {"exec": {"command": ["true"]}, **rest}

    def bad(number: int, one: Any = None, **spec: Any) -> Step:
        return post(PODS, pod(f"bad-{number}", one=one, **no_token, **spec))

    def init(number: int, **rest: Any) -> Step:
        return bad(number, initContainers=[{**container(**rest), "name": "init"}])

    gpu = {"nvidia.com/gpu": "1"}
    ones: list[dict[str, Any]] = [
        {"image": ""},
        {"image": " x"},
        {"name": "UPPER"},
        {"imagePullPolicy": "Sometimes"},
        {"ports": [{"containerPort": 0}]},
        {"ports": [{"containerPort": 70000}]},
        {"ports": [{"containerPort": 80, "protocol": "HTTP"}]},
        {"ports": [{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}]},
        {"env": [{"name": ""}]},
        {"env": [{"name": "A=B"}]},
        {"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
        {"env": [{"name": "A", "valueFrom": {}}]},
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nothing"}}}]},
        {"volumeMounts": [{"name": "none", "mountPath": "/x"}]},
        {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
        {"resources": {"requests": {"cpu": "-1"}}},
        {"resources": {"requests": {"cpu": "x"}}},
        {"resources": {"requests": gpu}},
        {"resources": {"requests": gpu, "limits": {"nvidia.com/gpu": "2"}}},
        {"resources": {"limits": {"nvidia.com/gpu": "500m"}}},
        {"resources": {"limits": {"gpu": "1"}}},
        {"livenessProbe": {}},
        {"livenessProbe": probe(periodSeconds=-1)},
        {"livenessProbe": probe(successThreshold=2)},
        {"readinessProbe": {"tcpSocket": {"port": 99999}}},
        {"securityContext": {"privileged": True, "allowPrivilegeEscalation": False}},
        {"securityContext": {"runAsUser": -1}},
        {"terminationMessagePolicy": "Never"},
        {"lifecycle": {"preStop": {}}},
        {"restartPolicy": "Sometimes"},
        {"workingDir": 5},
        {"resources": {"limits": {"hugepages-2Mi": "2Mi"}}},
        {"command": "sh"},
    ]
    specs: list[dict[str, Any]] = [
        {"containers": []},
        {"containers": [container(), container()]},
        {"restartPolicy": "Sometimes"},
        {"volumes": [{"name": "UP", "emptyDir": {}}]},
        {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]},
        {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": ""}}]},
        {"volumes": [{"name": "a", "persistentVolumeClaim": {}}]},
        {"volumes": [{"name": "a", "emptyDir": {}, "hostPath": {"path": "/x"}}]},
        {"volumes": [{"name": "a", "hostPath": {"path": "/x", "type": "Nothing"}}]},
        {"volumes": [{"name": "a", "emptyDir": {"medium": "Memory", "sizeLimit": "-1"}}]},
        {"terminationGracePeriodSeconds": -1},
        {"activeDeadlineSeconds": 0},
        {"dnsPolicy": "None"},
        {"dnsPolicy": "Mine"},
        {"nodeSelector": {"a b": "x"}},
        {"hostname": "Up.per"},
        {"subdomain": "_"},
        {"tolerations": [{"key": "a", "operator": "Equal", "effect": "Sometimes"}]},
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
        {"tolerations": [{"operator": "Equal", "value": "x"}]},
        {"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}]},
        {
            "topologySpreadConstraints": [
                {"maxSkew": 0, "topologyKey": "x", "whenUnsatisfiable": "DoNotSchedule"}
            ]
        },
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "x", "whenUnsatisfiable": "Maybe"}]},
        {
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
            }
        },
        {
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}}]}
            }
        },
        {"priorityClassName": "absent"},
        {"serviceAccountName": "absent"},
        {"priority": 5},
        {"runtimeClassName": "absent"},
        {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
        {"schedulingGates": [{"name": "example.org/a"}], "nodeName": "x"},
        {"securityContext": {"fsGroup": -1}},
        {"securityContext": {"sysctls": [{"name": "a..b", "value": "1"}]}},
        {"imagePullSecrets": [{"name": ""}]},
        {"overhead": {"cpu": "1"}},
    ]
    inits: list[dict[str, Any]] = [
        {"startupProbe": probe()},
        {"livenessProbe": probe()},
        {"readinessProbe": probe()},
        {"lifecycle": {"preStop": {"exec": {"command": ["true"]}}}},
        {"restartPolicy": "Never"},
        {"restartPolicy": "Always", "startupProbe": probe()},
    ]
    one = f"{PODS}/one"
    return [
        post(PODS, pod("one", **no_token), keep="pod", show=fields),
        post(
            PODS,
            pod(
                "two",
                one={"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
                restartPolicy="Never",
                **no_token,
            ),
            show=fields,
        ),
        *(bad(number, one) for number, one in enumerate(ones)),
        *(bad(100 + number, **each) for number, each in enumerate(specs)),
        *(init(200 + number, **each) for number, each in enumerate(inits)),
        patch("merge", one, {"spec": {"nodeName": "x"}}),
        patch("merge", one, {"spec": {"restartPolicy": "Never"}}),
        patch("merge", one, {"spec": {"terminationGracePeriodSeconds": 5}}),
        patch("merge", one, {"spec": {"activeDeadlineSeconds": 600}}, show=["spec.activeDeadlineSeconds"]),
        patch("merge", one, {"spec": {"activeDeadlineSeconds": 900}}),
        patch(
            "strategic",
            one,
            {"spec": {"containers": [{"name": "main", "image": "registry.example/b:1"}]}},
            show=["spec.containers.0.image"],
        ),
        patch(
            "strategic", one, {"spec": {"containers": [{"name": "more", "image": "registry.example/b:1"}]}}
        ),
        patch("strategic", one, {"spec": {"containers": [{"name": "main", "command": ["x"]}]}}),
        patch("merge", one, {"metadata": {"labels": {"a": "b"}}}, show=["metadata.labels"]),
        patch("merge", f"{one}/status", {"status": {"phase": "Running"}}, show=["status.phase"]),
        patch("merge", f"{one}/status", {"status": {"phase": "Happy"}}),
        patch("merge", one, {"status": {"phase": "Failed"}}, show=["status.phase"]),
        patch("merge", f"{one}/resize", {"spec": {}}, show=["kind"]),
        get(f"{one}/log"),
        get(f"{one}/log", tailLines="-1"),
        get(f"{one}/log", container="none"),
        get(f"{PODS}/absent/log"),
        post(
            f"{one}/eviction",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "other", "namespace": SPACE},
            },
        ),
        post(f"{one}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}),
        post(
            f"{PODS}/absent/eviction",
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "absent"}},
        ),
        post(
            f"{PODS}/two/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "two"},
                "target": {"kind": "Node", "name": ""},
            },
        ),
        delete(f"{PODS}/two", gracePeriodSeconds="0"),
        post(f"{one}/nothing", {}),
    ]


def admitted() -> list[Step]:
    """Limit ranges, quotas and pod security levels."""
    limits = [
        {
            "type": "Container",
            "max": {"cpu": "2"},
            "min": {"cpu": "100m"},
            "default": {"cpu": "1", "memory": "1Gi"},
            "defaultRequest": {"cpu": "500m"},
        }
    ]
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    show = ["spec.containers.0.resources"]

    def asking(name: str, **resources: Any) -> dict[str, Any]:
        return pod(name, one={"resources": resources}, automountServiceAccountToken=False)

    def secure(number: int, one: Any = None, **spec: Any) -> Step:
        first = {"securityContext": restricted, **(one or {})}
        return post(
            f"{_STRICT}/pods", pod(f"s-{number}", one=first, automountServiceAccountToken=False, **spec)
        )

    jobs = "/apis/batch/v1/namespaces/strict/jobs"
    return [
        post("/api/v1/namespaces", obj("v1", "Namespace", "limited")),
        get(f"{_LIMITED}/serviceaccounts/default", until=200),
        post(
            f"{_LIMITED}/limitranges",
            obj(
                "v1",
                "LimitRange",
                "bad",
                spec={"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]},
            ),
        ),
        post(
            f"{_LIMITED}/limitranges",
            obj("v1", "LimitRange", "bad", spec={"limits": [{"type": "Pod", "default": {"cpu": "1"}}]}),
        ),
        post(
            f"{_LIMITED}/limitranges",
            obj("v1", "LimitRange", "ours", spec={"limits": limits}),
            show=["spec.limits"],
        ),
        post(f"{_LIMITED}/pods", asking("plain"), until=201, show=show),
        post(f"{_LIMITED}/pods", asking("asks", requests={"cpu": "1500m"}), show=show),
        post(f"{_LIMITED}/pods", asking("both", requests={"cpu": "1"}, limits={"cpu": "2"}), show=show),
        post(f"{_LIMITED}/pods", asking("much", limits={"cpu": "3"})),
        post(f"{_LIMITED}/pods", asking("little", requests={"cpu": "1m"}, limits={"cpu": "1"})),
        post(
            f"{_LIMITED}/resourcequotas",
            obj(
                "v1",
                "ResourceQuota",
                "ours",
                spec={"hard": {"requests.nvidia.com/gpu": "0", "count/configmaps": "100"}},
            ),
            show=["spec.hard"],
        ),
        post(f"{_LIMITED}/resourcequotas", obj("v1", "ResourceQuota", "bad", spec={"hard": {"pods": "-1"}})),
        post("/api/v1/namespaces", obj("v1", "Namespace", "strict", meta={"labels": labels})),
        get(f"{_STRICT}/serviceaccounts/default", until=200),
        secure(0),
        secure(1, {"securityContext": {}}),
        secure(2, hostNetwork=True),
        secure(3, volumes=[{"name": "a", "hostPath": {"path": "/"}}]),
        secure(4, {"securityContext": {**restricted, "privileged": True, "allowPrivilegeEscalation": True}}),
        secure(
            5, {"securityContext": {**restricted, "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}}
        ),
        secure(6, {"securityContext": {**restricted, "runAsUser": 0}}),
        secure(7, {"ports": [{"containerPort": 80, "hostPort": 80}]}),
        secure(8, hostPID=True),
        secure(9, {"securityContext": {**restricted, "seccompProfile": {"type": "Unconfined"}}}),
        secure(10, volumes=[{"name": "a", "nfs": {"server": "x", "path": "/"}}]),
        post(jobs, job("warned"), show=["kind"]),
        post(jobs, job("clean", one={"securityContext": restricted}), show=["kind"]),
        post(f"{APPS.replace(SPACE, 'strict')}/deployments", deployment("warned")),
        patch("merge", "/api/v1/namespaces/limited", {"metadata": {"labels": labels}}),
    ]


def deployment(name: str, labels: Any = None, **spec: Any) -> dict[str, Any]:
    """A Deployment without replicas."""
    template = {"metadata": {"labels": labels or {"app": name}}, "spec": {"containers": [container()]}}
    selector = {"matchLabels": {"app": name}}
    return obj(
        "apps/v1",
        "Deployment",
        name,
        spec={"replicas": 0, "selector": selector, "template": template, **spec},
    )


def _codes(*values: Any, operator: str = "In", action: str = "FailJob", **rest: Any) -> dict[str, Any]:
    wish = {"operator": operator, "values": list(values), **rest}
    return {"podFailurePolicy": {"rules": [{"action": action, "onExitCodes": wish}]}}


def jobs() -> list[Step]:
    """Jobs."""
    fields = [
        "spec.completions",
        "spec.parallelism",
        "spec.backoffLimit",
        "spec.completionMode",
        "spec.podReplacementPolicy",
        "spec.manualSelector",
        "metadata.generation",
    ]
    indexed = {"completionMode": "Indexed", "completions": 4, "parallelism": 4}

    def bad(number: int, template: Any = None, **spec: Any) -> Step:
        return post(JOBS, job(f"bad-{number}", template=template, **spec))

    specs: list[dict[str, Any]] = [
        {"completions": -1},
        {"parallelism": -1},
        {"backoffLimit": -1},
        {"activeDeadlineSeconds": -1},
        {"ttlSecondsAfterFinished": -1},
        {"completionMode": "Sometimes"},
        {"completionMode": "Indexed"},
        {"completionMode": "Indexed", "completions": 1, "parallelism": 100_001},
        {"backoffLimitPerIndex": 1},
        {**indexed, "backoffLimitPerIndex": -1},
        {**indexed, "maxFailedIndexes": 1},
        {**indexed, "backoffLimitPerIndex": 1, "maxFailedIndexes": 5},
        {"podReplacementPolicy": "Maybe"},
        {"selector": {"matchLabels": {"a": "b"}}},
        {"manualSelector": True},
        {"template": None},
        {"managedBy": "nodomain"},
        {**indexed, "successPolicy": {"rules": []}},
        {**indexed, "successPolicy": {"rules": [{"succeededCount": 5}]}},
        {**indexed, "successPolicy": {"rules": [{"succeededIndexes": "7-9"}]}},
        {**indexed, "successPolicy": {"rules": [{"succeededIndexes": "1-0"}]}},
        {**indexed, "successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 2}]}},
        {**indexed, "successPolicy": {"rules": [{}]}},
        {"successPolicy": {"rules": [{"succeededCount": 1}]}},
        _codes(),
        _codes(0),
        _codes(1, 1),
        _codes(2, 1),
        _codes(1, operator="Above"),
        _codes(1, action="Explode"),
        _codes(1, containerName="absent"),
        _codes(1, action="FailIndex"),
        {"podFailurePolicy": {"rules": [{"action": "Ignore"}]}},
        {
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "", "status": "True"}]}]
            }
        },
        {
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "Perhaps"}],
                    }
                ]
            }
        },
        {**_codes(1), "podReplacementPolicy": "TerminatingOrFailed"},
    ]
    one, run = f"{JOBS}/one", f"{JOBS}/indexed"
    resources = {"containers": [container(resources={"requests": {"cpu": "2"}})], "restartPolicy": "Never"}
    return [
        post(JOBS, job("one"), keep="job", show=fields),
        post(
            JOBS,
            job("indexed", **indexed, backoffLimitPerIndex=1),
            show=[*fields, "spec.backoffLimitPerIndex"],
        ),
        post(
            JOBS, job("policy", **_codes(64, 65)), show=["spec.podFailurePolicy", "spec.podReplacementPolicy"]
        ),
        post(
            JOBS,
            job("success", **indexed, successPolicy={"rules": [{"succeededIndexes": "0"}]}),
            show=["spec.successPolicy"],
        ),
        *(bad(number, **each) for number, each in enumerate(specs)),
        bad(100, {"restartPolicy": "Always"}),
        bad(101, {"restartPolicy": "OnFailure"}, **_codes(1)),
        post(JOBS, job("a" * 64)),
        post(JOBS, job("dots.allowed"), show=["kind"]),
        patch("merge", one, {"spec": {"parallelism": 2}}, show=["spec.parallelism"]),
        patch("merge", one, {"spec": {"completions": 3}}),
        patch("merge", one, {"spec": {"backoffLimit": 2}}, show=["spec.backoffLimit"]),
        patch("merge", one, {"spec": {"completionMode": "Indexed"}}),
        patch("merge", one, {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}),
        patch(
            "strategic",
            one,
            {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}},
            show=["spec.template.spec.nodeSelector"],
        ),
        patch(
            "merge",
            one,
            {"spec": {"template": {"spec": resources}}},
            show=["spec.template.spec.containers.0.resources"],
        ),
        patch("merge", one, {"spec": {"selector": {"matchLabels": {"a": "b"}}}}),
        patch("merge", one, {"spec": {"managedBy": "example.org/x"}}),
        patch("merge", one, {"spec": {"podReplacementPolicy": "Failed"}}, show=["spec.podReplacementPolicy"]),
        patch("merge", run, {"spec": {"completions": 2, "parallelism": 2}}, show=["spec.completions"]),
        patch("merge", run, {"spec": {"completions": 2, "parallelism": 1}}),
        patch("merge", run, {"spec": {"backoffLimitPerIndex": 3}}),
        patch("merge", f"{one}/status", {"status": {"active": -1}}),
        apply(
            one,
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one"}, "spec": {"suspend": True}},
            show=["spec.suspend"],
        ),
        delete(f"{JOBS}/success", {"propagationPolicy": "Background"}, show=["kind"]),
        delete(f"{JOBS}/policy", {"propagationPolicy": "Foreground"}, show=["metadata.finalizers", "kind"]),
    ]


def cron_jobs() -> list[Step]:
    """CronJobs."""

    def cron(name: str, **spec: Any) -> dict[str, Any]:
        pods_ = {"restartPolicy": "Never", "containers": [container()]}
        usual = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": pods_}}}}
        return obj("batch/v1", "CronJob", name, spec={**usual, **spec})

    bad: list[dict[str, Any]] = [
        {"schedule": "x"},
        {"schedule": ""},
        {"schedule": "TZ=UTC 0 0 1 1 *"},
        {"timeZone": "Mars/Base"},
        {"timeZone": ""},
        {"timeZone": "local"},
        {"concurrencyPolicy": "Maybe"},
        {"schedule": "61 * * * *"},
        {"startingDeadlineSeconds": -1},
        {"successfulJobsHistoryLimit": -1},
        {"schedule": "* * * *"},
    ]
    show = [
        "spec.concurrencyPolicy",
        "spec.suspend",
        "spec.successfulJobsHistoryLimit",
        "spec.failedJobsHistoryLimit",
        "spec.timeZone",
    ]
    return [
        post(CRON, cron("one"), show=show),
        post(CRON, cron("zoned", timeZone="Europe/Paris"), show=show),
        post(CRON, cron("daily", schedule="@daily"), show=["spec.schedule"]),
        post(CRON, cron("ranges", schedule="*/5 1-3,7 * JAN MON"), show=["spec.schedule"]),
        post(CRON, cron("n" * 53)),
        *(post(CRON, cron(f"bad-{number}", **each)) for number, each in enumerate(bad)),
        patch("merge", f"{CRON}/one", {"spec": {"schedule": "99 * * * *"}}),
        patch(
            "merge", f"{CRON}/one", {"spec": {"suspend": True}}, show=["spec.suspend", "metadata.generation"]
        ),
    ]


def applications() -> list[Step]:
    """Deployments, DaemonSets and the subresource scale."""
    sets = f"{APPS}/deployments"
    daemon = {key: value for key, value in deployment("d")["spec"].items() if key != "replicas"}
    return [
        post(
            sets,
            deployment("one"),
            show=["spec.strategy", "spec.revisionHistoryLimit", "spec.progressDeadlineSeconds"],
        ),
        post(sets, deployment("bad", {"other": "x"})),
        post(sets, deployment("bad", selector={})),
        post(sets, deployment("bad", replicas=-1)),
        post(sets, deployment("bad", strategy={"type": "Fast"})),
        patch("merge", f"{sets}/one", {"spec": {"selector": {"matchLabels": {"app": "x"}}}}),
        get(f"{sets}/one/scale", show=["kind", "spec.replicas"]),
        patch("merge", f"{sets}/one/scale", {"spec": {"replicas": -1}}),
        patch("merge", f"{sets}/one/scale", {"spec": {"replicas": 0}}, show=["spec.replicas"]),
        put(
            f"{sets}/one/scale",
            {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "one", "namespace": SPACE},
                "spec": {"replicas": 0},
            },
        ),
        post(
            f"{APPS}/daemonsets",
            obj("apps/v1", "DaemonSet", "one", spec=daemon),
            show=["spec.updateStrategy"],
        ),
        post(
            f"{APPS}/daemonsets",
            obj("apps/v1", "DaemonSet", "bad", spec={**daemon, "updateStrategy": {"type": "Never"}}),
        ),
        step("DELETE", f"{sets}/absent"),
    ]


def steps() -> list[Step]:
    """All of them, in order."""
    return [*pods(), *admitted(), *jobs(), *cron_jobs(), *applications()]

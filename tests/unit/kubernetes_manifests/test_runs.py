"""The objects of a run by launcher, and the refusals before rendering."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cloudrec.errors import SpecError, UsageError
from cloudrec.kubernetes.manifests import (
    Guarding,
    guard_objects,
    namespace_objects,
    probe_objects,
    run_objects,
)
from cloudrec.kubernetes.manifests.guard import KINDS, NAME
from cloudrec.kubernetes.manifests.shared import claim_name
from cloudrec_sandbox.kubernetes.rules.amounts import quality
from tests.unit.kubernetes_manifests.support_matrix import (
    FAMILIES,
    IMAGE,
    matrix,
    objects,
    pod_templates,
    profile,
    workload,
)

_LAUNCHERS = ("torchrun", "pytorchjob", "trainjob", "jobset", "rayjob")


def _run(launcher: str = "torchrun", family: str = "aws-p5", **changes: Any) -> tuple[dict[str, Any], ...]:
    target = FAMILIES[family]
    return run_objects(launcher, workload(family, **changes), target, profile(target))


def _of(kind: str, found: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    (one,) = [each for each in found if each["kind"] == kind]
    return one


def _trainer(found: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    (template,) = [
        each
        for each in pod_templates(list(found))
        if each["metadata"]["labels"].get("cloudrec/role") == "trainer"
    ]
    container: dict[str, Any] = template["spec"]["containers"][0]
    return container


def _variables(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in container["env"]}


@pytest.mark.parametrize(
    ("launcher", "kinds"),
    [
        ("torchrun", ["Service", "Job"]),
        ("pytorchjob", ["PyTorchJob"]),
        ("trainjob", ["TrainingRuntime", "TrainJob"]),
        ("jobset", ["JobSet"]),
        ("rayjob", ["RayJob"]),
    ],
)
def test_objects_are_in_the_order_of_their_application(launcher: str, kinds: list[str]) -> None:
    before = ["ConfigMap", "NetworkPolicy", "PodDisruptionBudget"]
    assert [each["kind"] for each in objects("aws-p5", launcher)] == before + kinds


def test_a_failed_pod_is_ignored_fatal_or_counted_by_its_cause() -> None:
    job = _of("Job", objects("aws-p5", "torchrun"))["spec"]
    lost, final, again = job["podFailurePolicy"]["rules"]
    assert (lost["action"], lost["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert (final["action"], final["onExitCodes"]["values"]) == ("FailJob", [64, 65, 69, 70, 71])
    assert (again["action"], again["onExitCodes"]["values"]) == ("Ignore", [75])
    assert (job["backoffLimit"], job["podReplacementPolicy"]) == (3, "Failed")
    assert (job["backoffLimitPerIndex"], job["maxFailedIndexes"]) == (3, 0)
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    names = {rule["onExitCodes"]["containerName"] for rule in (final, again)}
    assert names == {job["template"]["spec"]["containers"][0]["name"]}


def test_a_trainjob_has_the_pod_failure_policy_of_an_indexed_job() -> None:
    runtime = _of("TrainingRuntime", objects("aws-p5", "trainjob"))
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    mine = _of("Job", objects("aws-p5", "torchrun"))["spec"]["podFailurePolicy"]["rules"]
    theirs = job["template"]["spec"]["podFailurePolicy"]["rules"]
    assert json.dumps(theirs).replace('"node"', '"trainer"') == json.dumps(mine)
    assert job["name"] == "node"


def test_a_jobset_has_the_one_job_of_torchrun_and_does_not_restart_it_by_itself() -> None:
    found = _of("JobSet", objects("aws-p5", "jobset"))["spec"]
    assert "failurePolicy" not in found
    (job,) = found["replicatedJobs"]
    mine = _of("Job", objects("aws-p5", "torchrun"))["spec"]
    theirs = job["template"]["spec"]
    assert theirs["podFailurePolicy"] == mine["podFailurePolicy"]
    assert (theirs["completions"], theirs["successPolicy"]) == (4, {"rules": [{"succeededCount": 2}]})


def test_an_operator_that_supports_exit_codes_from_128_uses_one() -> None:
    assert _variables(_trainer(objects("aws-p5", "pytorchjob")))["CLOUDREC_AGAIN_CODE"] == "203"
    assert "CLOUDREC_AGAIN_CODE" not in _variables(_trainer(objects("aws-p5", "torchrun")))


@pytest.mark.parametrize(
    ("launcher", "endpoint", "address"),
    [
        ("torchrun", "dlrm-0.dlrm:29400", "$(CLOUDREC_ADDRESS)"),
        ("pytorchjob", "dlrm-worker-0:29400", "$(POD_NAME).training.svc"),
        ("trainjob", "dlrm-node-0-0.dlrm:29400", "$(CLOUDREC_ADDRESS)"),
        ("jobset", "dlrm-node-0-0.dlrm:29400", "$(CLOUDREC_ADDRESS)"),
    ],
)
def test_the_rendezvous_is_the_dns_name_of_the_first_pod(launcher: str, endpoint: str, address: str) -> None:
    arguments = _trainer(objects("aws-p5", launcher))["args"]
    assert arguments[:2] == ["--", "torchrun"]
    assert arguments[arguments.index("--rdzv-endpoint") + 1] == endpoint
    assert arguments[arguments.index("--local-addr") + 1] == address
    assert arguments[arguments.index("--nnodes") + 1] == "2:4"
    assert arguments[arguments.index("--rdzv-id") + 1] == "dlrm-1"


def test_a_variable_follows_those_that_it_refers_to() -> None:
    names = list(_variables(_trainer(objects("aws-p5", "torchrun"))))
    assert names.index("CLOUDREC_INDEX") < names.index("CLOUDREC_ADDRESS")


def test_a_ray_driver_reads_its_commands_from_a_file_and_not_through_a_shell() -> None:
    found = _run("rayjob", flags=("--note", 'it\'s $(HOME) "here"; rm -rf /'))
    job = _of("RayJob", found)["spec"]
    assert job["entrypoint"] == "python -P -m cloudrec.agent ray /etc/cloudrec/launch.json"
    launch = json.loads(_of("ConfigMap", found)["data"]["launch.json"])
    assert launch["program"][-1] == 'it\'s $(HOME) "here"; rm -rf /'
    assert (launch["nodes"], launch["min_nodes"], launch["gpus"]) == (4, 2, 8)
    assert job["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    (group,) = job["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["replicas"], group["rayStartParams"]) == (4, {"num-cpus": "1", "num-gpus": "8"})


def test_user_variables_and_flags_take_precedence_and_reach_the_trainer_unchanged() -> None:
    found = _run(environment={"NCCL_DEBUG": "WARN", "NOTE": "$(HOME)"}, flags=("--note", "$(HOME)"))
    container = _trainer(found)
    assert _variables(container)["NCCL_DEBUG"] == "WARN"
    assert _variables(container)["NOTE"] == "$$(HOME)"
    assert container["args"][-2:] == ["--note", "$$(HOME)"]


def test_a_pod_gets_its_name_and_addresses_as_variables() -> None:
    told = _variables(_trainer(objects("gcp-a3-mega", "torchrun")))
    assert told["CLOUDREC_RUN"] == "dlrm"
    assert told["CLOUDREC_RESULTS"] == "gs://bucket/runs/dlrm"
    assert told["CLOUDREC_FABRIC"] == "tcpxo"
    assert told["CLOUDREC_GPUS"] == "8"
    assert told["CLOUDREC_ALLOW_TCP"] == "0"
    assert told["CLOUDREC_PROFILE"] == "/usr/local/nvidia/lib64/nccl-env-profile.sh"
    assert "NCCL_PROTO" not in told, "the script sets it, and a checker refuses other values"


def test_pods_request_the_network_adapters_of_the_fabric() -> None:
    limits = _trainer(objects("aws-p5", "torchrun"))["resources"]["limits"]
    assert limits["vpc.amazonaws.com/efa"] == "32"
    assert limits["hugepages-2Mi"] == "5120Mi"
    assert _trainer(objects("azure-nd-h100-v5", "torchrun"))["resources"]["limits"]["rdma/ib"] == "8"


@pytest.mark.parametrize("launcher", _LAUNCHERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_pod_of_a_run_is_best_effort_even_on_nodes_of_unknown_size(family: str, launcher: str) -> None:
    templates = list(pod_templates(list(_run(launcher, family, cpus=0, memory_gib=0))))
    assert templates
    assert "BestEffort" not in {quality(each["spec"]) for each in templates}


def test_cores_have_a_limit_only_where_a_quota_counts_it() -> None:
    target = FAMILIES["aws-p5"]
    assert "cpu" not in _trainer(_run())["resources"]["limits"]
    counted = run_objects("torchrun", workload(), replace(target, limits_cores=True), profile(target))
    resources = _trainer(counted)["resources"]
    assert resources["limits"]["cpu"] == resources["requests"]["cpu"] == "4"


def test_a_ray_head_fits_beside_a_worker_on_a_small_node() -> None:
    small = replace(FAMILIES["kubernetes-cpu"], cpus=4, memory_gib=12)
    made = run_objects("rayjob", workload("kubernetes-cpu", cpus=3, memory_gib=8), small, profile(small))
    roles = {
        each["metadata"]["labels"]["cloudrec/role"]: each["spec"]["containers"][0]["resources"]
        for each in pod_templates(list(made))
    }
    assert roles["ray-head"]["requests"] == {"cpu": "1", "memory": "4Gi"}
    assert roles["ray-head"]["limits"] == {"cpu": "2", "memory": "8Gi"}
    assert roles["trainer"]["requests"] == {"cpu": "3", "memory": "8Gi"}


def test_shared_memory_has_the_size_of_the_transport_within_the_memory_of_the_pod() -> None:
    def size(found: tuple[dict[str, Any], ...]) -> str:
        (template,) = pod_templates(_of("Job", found))
        (shm,) = [each["emptyDir"] for each in template["spec"]["volumes"] if each["name"] == "shm"]
        assert shm["medium"] == "Memory"
        return str(shm["sizeLimit"])

    assert size(_run(memory_gib=1800)) == size(_run(memory_gib=0)) == "64Gi"
    assert size(_run(memory_gib=16)) == "8Gi"


def test_pods_are_attached_to_the_networks_of_the_gpu_adapters() -> None:
    job = _of("Job", objects("gcp-a3-mega", "torchrun"))["spec"]["template"]
    notes = job["metadata"]["annotations"]
    cards = json.loads(notes["networking.gke.io/interfaces"])
    assert cards[0] == {"interfaceName": "eth0", "network": "default"}
    assert cards[8] == {"interfaceName": "eth8", "network": "cloudrec-gcp-gpu8"}
    assert "/dev/dmabuf_import_helper" in notes["devices.gke.io/container.tcpxo-daemon"]
    (daemon,) = job["spec"]["initContainers"]
    assert (daemon["name"], daemon["restartPolicy"]) == ("tcpxo-daemon", "Always")


def test_a_pod_has_its_node_exclusively_and_leaves_a_lost_node_soon() -> None:
    pod = _of("Job", objects("azure-nd-h100-v5", "torchrun"))["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    lost = {
        each["key"]: each["tolerationSeconds"] for each in pod["tolerations"] if "tolerationSeconds" in each
    }
    assert lost == {"node.kubernetes.io/not-ready": 30, "node.kubernetes.io/unreachable": 30}
    keys = [each["key"] for each in pod["tolerations"]]
    assert keys.count("nvidia.com/gpu") == 1
    assert "kubernetes.azure.com/scalesetpriority" in keys


def test_an_elastic_run_can_succeed_with_fewer_nodes() -> None:
    assert _of("Job", _run())["spec"]["successPolicy"] == {"rules": [{"succeededCount": 2}]}
    assert "successPolicy" not in _of("Job", _run(min_nodes=4))["spec"]


def test_drains_evict_one_pod_at_a_time_within_the_disruption_budget() -> None:
    assert _of("PodDisruptionBudget", _run())["spec"]["minAvailable"] == 2
    assert _of("PodDisruptionBudget", _run(min_nodes=4))["spec"]["minAvailable"] == 3
    assert "PodDisruptionBudget" not in {each["kind"] for each in _run(nodes=1, min_nodes=1)}


@pytest.mark.parametrize("launcher", _LAUNCHERS)
def test_queue_and_priority_are_those_of_the_user(launcher: str) -> None:
    found = _run(launcher, queue="gpus", priority_class="high")
    queued = [each["kind"] for each in found if "kueue.x-k8s.io/queue-name" in each["metadata"]["labels"]]
    assert queued == [found[-1]["kind"]]
    assert all(each["spec"]["priorityClassName"] == "high" for each in pod_templates(list(found)))
    assert "suspend" not in found[-1]["spec"], "Kueue sets it, or the command that stops the run"


def test_a_namespace_has_the_strictest_level_that_its_fabric_permits() -> None:
    def level(family: str) -> str:
        labels = namespace_objects(FAMILIES[family], "c", "ann")[0]["metadata"]["labels"]
        return str(labels["pod-security.kubernetes.io/enforce"])

    assert level("aws-p5") == "restricted"
    assert level("azure-nd-h100-v5") == "privileged"


@pytest.mark.parametrize("name", ["default", "kube-system"])
def test_a_preexisting_namespace_is_left_alone(name: str) -> None:
    assert namespace_objects(replace(FAMILIES["kubernetes-cpu"], namespace=name), "c", "ann") == ()


def test_a_probe_requests_no_gpu_and_has_the_environment_of_the_run() -> None:
    target = FAMILIES["gcp-a3-mega"]
    found = probe_objects(workload("gcp-a3-mega"), target, profile(target))
    job = _of("Job", found)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert job["metadata"]["name"] == "dlrm-probe"
    assert container["command"] == ["python", "-P", "-m", "cloudrec.agent", "probe"]
    assert container["args"] == ["--dataset", "gs://bucket/data/criteo", "--results", "gs://bucket/runs/dlrm"]
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert pod["nodeSelector"] == dict(target.node_selector)
    assert {each["key"] for each in pod["tolerations"]} >= {"nvidia.com/gpu"}
    assert "initContainers" not in pod
    assert {each["metadata"]["name"] for each in found} == {"dlrm-probe"}


@pytest.mark.parametrize(
    ("config", "mounted"),
    [
        ("dataset_path: /mnt/lustre/criteo\n", ["/mnt/lustre"]),
        ("dataset_path: file:///mnt/lustre\n", ["/mnt/lustre"]),
        ("dataset_path: /mnt/lustre2/criteo\n", []),
        ("dataset_path: /srv/mnt/lustre/criteo\n", []),
        ("dataset_path: s3://bucket/mnt/lustre\n", []),
    ],
)
def test_the_file_system_of_the_cluster_is_mounted_at_the_path_that_a_run_uses(
    config: str, mounted: list[str]
) -> None:
    volumes: list[dict[str, Any]] = [
        {"name": "lustre", "driver": "d", "handle": "h", "capacity": "1Ti", "pod_annotations": {"a": "b"}},
        {"name": "bucket", "driver": "d", "handle": "h", "capacity": "1Pi"},
    ]
    target = replace(FAMILIES["aws-p5"], volumes=volumes)
    run = run_objects("torchrun", workload(config=config), target, profile(target))
    probe = probe_objects(workload(config=config), target, profile(target))
    for found in (run, probe):
        template = _of("Job", found)["spec"]["template"]
        (container,) = template["spec"]["containers"]
        assert [
            each["mountPath"] for each in container["volumeMounts"] if "/mnt" in each["mountPath"]
        ] == mounted
        claims = [
            each["persistentVolumeClaim"]
            for each in template["spec"]["volumes"]
            if "persistentVolumeClaim" in each
        ]
        assert claims == [{"claimName": claim_name(volumes[0])}] * len(mounted)
        assert ("a" in template["metadata"].get("annotations", {})) == bool(mounted)


def test_the_guard_can_only_stop_runs_and_end_pods() -> None:
    guarding = Guarding(cluster="c", owner="ann", image=IMAGE, annotations={"a": "b"})
    found = guard_objects(FAMILIES["aws-p5"], guarding)
    assert [each["kind"] for each in found] == [
        "ServiceAccount",
        "ConfigMap",
        "Role",
        "RoleBinding",
        "NetworkPolicy",
        "CronJob",
    ]
    rules = _of("Role", found)["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "patch", "delete"}
    assert [rule["resources"] for rule in rules if "delete" in rule["verbs"]] == [["pods"]]  # of dead nodes
    assert _of("CronJob", found)["spec"]["concurrencyPolicy"] == "Forbid"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_guard_has_no_rights_beyond_its_namespace(family: str) -> None:
    found = guard_objects(FAMILIES[family], Guarding(cluster="c", owner="ann", image=IMAGE))
    assert {each["metadata"]["namespace"] for each in found} == {FAMILIES[family].namespace}


def test_a_guard_that_meters_may_also_list_the_nodes_and_nothing_else_outside_its_namespace() -> None:
    guarding = Guarding(cluster="c", owner="ann", image=IMAGE, meters=True)
    found = guard_objects(FAMILIES["aws-p5"], guarding)
    wide = [each for each in found if "namespace" not in each["metadata"]]
    assert [each["kind"] for each in wide] == [
        "ValidatingAdmissionPolicy",  # before the permission that it limits
        "ValidatingAdmissionPolicyBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ]
    assert wide[2]["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    (subject,) = wide[3]["subjects"]
    assert (subject["name"], subject["namespace"]) == (NAME, FAMILIES["aws-p5"].namespace)


def test_every_kind_of_the_guard_is_deleted_with_it() -> None:
    found = guard_objects(FAMILIES["aws-p5"], Guarding(cluster="c", owner="ann", image=IMAGE))
    assert {each["kind"] for each in found} == {kind.rpartition("/")[2] for kind in KINDS}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_object_has_an_empty_list_that_a_server_would_drop(family: str) -> None:
    for name, found in matrix():
        if name.startswith(family):
            assert not list(_empty_lists(list(found))), name


def _empty_lists(thing: Any) -> Iterator[Any]:
    children = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list) else ()
    for each in children:
        if each == []:
            yield thing
        yield from _empty_lists(each)


def test_a_run_and_its_probe_do_not_change_the_namespace_or_the_service_account() -> None:
    for name, found in matrix():
        if "guard" not in name:
            assert not {each["kind"] for each in found} & {"Namespace", "ServiceAccount"}, name
    target = FAMILIES["aws-p5"]
    probe = probe_objects(workload(), target, profile(target))
    assert not {each["kind"] for each in probe} & {"Namespace", "ServiceAccount"}


def test_the_manifests_of_a_thousand_workers_have_the_size_of_those_of_four() -> None:
    found = _run(nodes=1000, min_nodes=1000)
    assert _of("Job", found)["spec"]["completions"] == 1000
    assert len(json.dumps(found)) < len(json.dumps(_run(nodes=4, min_nodes=4))) + 100


@pytest.mark.parametrize(
    ("launcher", "longest"),
    [("torchrun", 57), ("pytorchjob", 53), ("trainjob", 47), ("jobset", 47), ("rayjob", 47)],
)
def test_the_length_of_a_name_is_limited_by_the_names_of_its_pods(launcher: str, longest: int) -> None:
    assert _run(launcher, run="r" * longest, nodes=100)
    with pytest.raises(SpecError, match=rf"has {longest + 1} characters.* {longest} is the limit") as refused:
        _run(launcher, run="r" * (longest + 1), nodes=100)
    assert "--name" in str(refused.value.remedy)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": ""}, "there is no image"),
        ({"image": "a b"}, "no image reference"),
        ({"run": "1st"}, "cannot be a Service's name"),
        ({"run": "Upper"}, "cannot be a Service's name"),
        ({"owner": "a/b"}, "the owner's name 'a/b' cannot be a label"),
        ({"nodes": 0}, "nodes is 0"),
        ({"nodes": 2, "min_nodes": 3}, "min_nodes is 3, and there are 2 nodes"),
        ({"queue": "No_Queue"}, "the queue 'No_Queue'"),
        ({"priority_class": "-"}, "the priority class '-'"),
        ({"environment": {"a b": "1"}}, "'a b' cannot be the name"),
        ({"environment": {"AWS_SECRET_ACCESS_KEY": "x"}}, "looks like a secret"),
        ({"environment": {"WANDB_API_KEY": "x"}}, "looks like a secret"),
        ({"environment": {"PROXY": "http://me:word@proxy:3128"}}, "looks like a secret"),
        ({"environment": {"AWS_ENDPOINT_URL": "http://store:99999"}}, "is no URL"),
    ],
)
def test_values_that_kubernetes_would_reject_are_refused_at_once(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        _run(**changes)


def test_a_name_that_resembles_a_secret_is_accepted() -> None:
    environment = {
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/t",
        "MAX_TOKENS": "5",
        "TOKENIZERS_PARALLELISM": "false",
    }
    assert _run(environment=environment)


def test_a_custom_store_is_allowed_at_its_port() -> None:
    policy = _of("NetworkPolicy", _run(environment={"AWS_ENDPOINT_URL": "http://store.example:9000"}))
    assert policy["spec"]["egress"][-1]["ports"] == [
        {"protocol": "TCP", "port": 443},
        {"protocol": "TCP", "port": 9000},
    ]


def test_an_unknown_launcher_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no launcher 'slurm' for Kubernetes") as refused:
        _run("slurm")
    assert refused.value.remedy == "use one of torchrun, pytorchjob, trainjob, jobset, rayjob"


def test_a_rayjob_fails_if_its_pods_do_not_run_in_time_unless_a_keeper_gives_it_nodes() -> None:
    limited = _of("RayJob", _run("rayjob", start_timeout_s=3600))
    assert limited["spec"]["preRunningDeadlineSeconds"] == 3600
    for changes in ({"start_timeout_s": 0}, {"start_timeout_s": 3600, "wishes": {"cloudrec/nodes": "2"}}):
        assert "preRunningDeadlineSeconds" not in _of("RayJob", _run("rayjob", **changes))["spec"]

"""What a run's objects say, launcher by launcher, and what is refused before there is any."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from cloudrec.errors import SpecError, UsageError
from cloudrec.manifests import Guarding, guard_objects, namespace_objects, probe_objects, run_objects
from tests.unit.manifests.support_matrix import FAMILIES, IMAGE, objects, pod_templates, profile, workload

_LAUNCHERS = ("torchrun", "pytorchjob", "trainjob", "rayjob")


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
        ("rayjob", ["RayJob"]),
    ],
)
def test_objects_come_in_the_order_in_which_they_are_applied(launcher: str, kinds: list[str]) -> None:
    before = ["Namespace", "ServiceAccount", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget"]
    assert [each["kind"] for each in objects("aws-p5", launcher)] == before + kinds


def test_a_failed_pod_is_forgiven_ended_or_counted_by_its_cause() -> None:
    job = _of("Job", objects("aws-p5", "torchrun"))["spec"]
    lost, final, again = job["podFailurePolicy"]["rules"]
    assert (lost["action"], lost["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert (final["action"], final["onExitCodes"]["values"]) == ("FailJob", [64, 65, 69, 70])
    assert (again["action"], again["onExitCodes"]["values"]) == ("Ignore", [75])
    assert (job["backoffLimit"], job["podReplacementPolicy"]) == (3, "Failed")
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    names = {rule["onExitCodes"]["containerName"] for rule in (final, again)}
    assert names == {job["template"]["spec"]["containers"][0]["name"]}


def test_a_trainjobs_pods_end_by_the_same_policy_as_an_indexed_jobs() -> None:
    runtime = _of("TrainingRuntime", objects("aws-p5", "trainjob"))
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    mine = _of("Job", objects("aws-p5", "torchrun"))["spec"]["podFailurePolicy"]["rules"]
    theirs = job["template"]["spec"]["podFailurePolicy"]["rules"]
    assert json.dumps(theirs).replace('"node"', '"trainer"') == json.dumps(mine)
    assert job["name"] == "node"


def test_an_operator_that_knows_codes_of_128_and_more_is_given_one() -> None:
    assert _variables(_trainer(objects("aws-p5", "pytorchjob")))["CLOUDREC_AGAIN_CODE"] == "203"
    assert "CLOUDREC_AGAIN_CODE" not in _variables(_trainer(objects("aws-p5", "torchrun")))


@pytest.mark.parametrize(
    ("launcher", "endpoint", "address"),
    [
        ("torchrun", "dlrm-0.dlrm:29400", "$(CLOUDREC_ADDRESS)"),
        ("pytorchjob", "dlrm-worker-0:29400", "$(POD_NAME).training.svc"),
        ("trainjob", "dlrm-node-0-0.dlrm:29400", "$(CLOUDREC_ADDRESS)"),
    ],
)
def test_ranks_meet_at_the_first_pod_by_names_that_dns_knows(
    launcher: str, endpoint: str, address: str
) -> None:
    arguments = _trainer(objects("aws-p5", launcher))["args"]
    assert arguments[:2] == ["--", "torchrun"]
    assert arguments[arguments.index("--rdzv-endpoint") + 1] == endpoint
    assert arguments[arguments.index("--local-addr") + 1] == address
    assert arguments[arguments.index("--nnodes") + 1] == "2:4"
    assert arguments[arguments.index("--rdzv-id") + 1] == "dlrm-1"


def test_a_variable_is_set_after_those_that_it_refers_to() -> None:
    names = list(_variables(_trainer(objects("aws-p5", "torchrun"))))
    assert names.index("CLOUDREC_INDEX") < names.index("CLOUDREC_ADDRESS")


def test_a_ray_driver_reads_its_commands_from_a_file_so_that_no_shell_can_change_them() -> None:
    found = _run("rayjob", flags=("--note", 'it\'s $(HOME) "here"; rm -rf /'))
    job = _of("RayJob", found)["spec"]
    assert job["entrypoint"] == "python -m cloudrec.pod ray /etc/cloudrec/launch.json"
    launch = json.loads(_of("ConfigMap", found)["data"]["launch.json"])
    assert launch["program"][-1] == 'it\'s $(HOME) "here"; rm -rf /'
    assert (launch["nodes"], launch["min_nodes"], launch["gpus"]) == (4, 2, 8)
    assert job["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    (group,) = job["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["replicas"], group["rayStartParams"]) == (4, {"num-cpus": "1", "num-gpus": "8"})


def test_the_users_variables_and_flags_win_and_reach_the_trainer_as_they_are() -> None:
    found = _run(environment={"NCCL_DEBUG": "WARN", "NOTE": "$(HOME)"}, flags=("--note", "$(HOME)"))
    container = _trainer(found)
    assert _variables(container)["NCCL_DEBUG"] == "WARN"
    assert _variables(container)["NOTE"] == "$$(HOME)"
    assert container["args"][-2:] == ["--note", "$$(HOME)"]


def test_the_pod_is_told_of_itself() -> None:
    told = _variables(_trainer(objects("gcp-a3-mega", "torchrun")))
    assert told["CLOUDREC_RUN"] == "dlrm"
    assert told["CLOUDREC_RESULTS"] == "gs://bucket/runs/dlrm"
    assert told["CLOUDREC_FABRIC"] == "tcpxo"
    assert told["CLOUDREC_GPUS"] == "8"
    assert told["CLOUDREC_ALLOW_TCP"] == "0"
    assert told["CLOUDREC_PROFILE"] == "/usr/local/nvidia/lib64/nccl-env-profile.sh"
    assert "NCCL_PROTO" not in told, "the script sets it, and a checker refuses other values"


def test_pods_of_a_fabric_ask_for_its_cards() -> None:
    limits = _trainer(objects("aws-p5", "torchrun"))["resources"]["limits"]
    assert limits["vpc.amazonaws.com/efa"] == "32"
    assert limits["hugepages-2Mi"] == "5120Mi"
    assert _trainer(objects("azure-nd-h100-v5", "torchrun"))["resources"]["limits"]["rdma/ib"] == "8"


def test_huge_pages_never_stand_alone() -> None:
    requests = _trainer(_run(cpus=0, memory_gib=0))["resources"]["requests"]
    assert requests["cpu"] == "1"
    assert "resources" in _trainer(_run(family="kubernetes-cpu", cpus=0, memory_gib=0))


def test_shared_memory_is_as_the_transport_says_and_within_the_pods_memory() -> None:
    def size(found: tuple[dict[str, Any], ...]) -> str:
        (template,) = pod_templates(_of("Job", found))
        (shm,) = [each["emptyDir"] for each in template["spec"]["volumes"] if each["name"] == "shm"]
        assert shm["medium"] == "Memory"
        return str(shm["sizeLimit"])

    assert size(_run(memory_gib=1800)) == size(_run(memory_gib=0)) == "64Gi"
    assert size(_run(memory_gib=16)) == "8Gi"


def test_the_networks_of_the_gpus_cards_are_the_pods() -> None:
    job = _of("Job", objects("gcp-a3-mega", "torchrun"))["spec"]["template"]
    notes = job["metadata"]["annotations"]
    cards = json.loads(notes["networking.gke.io/interfaces"])
    assert cards[0] == {"interfaceName": "eth0", "network": "default"}
    assert cards[8] == {"interfaceName": "eth8", "network": "cloudrec-gcp-gpu8"}
    assert "/dev/dmabuf_import_helper" in notes["devices.gke.io/container.tcpxo-daemon"]
    (daemon,) = job["spec"]["initContainers"]
    assert (daemon["name"], daemon["restartPolicy"]) == ("tcpxo-daemon", "Always")


def test_a_node_is_one_pods_alone_and_is_given_up_soon_when_it_is_lost() -> None:
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


def test_a_run_that_may_go_on_with_fewer_nodes_also_ends_with_fewer() -> None:
    assert _of("Job", _run())["spec"]["successPolicy"] == {"rules": [{"succeededCount": 2}]}
    assert "successPolicy" not in _of("Job", _run(min_nodes=4))["spec"]


def test_drains_take_a_pod_at_a_time_and_no_more_than_a_run_can_miss() -> None:
    assert _of("PodDisruptionBudget", _run())["spec"]["minAvailable"] == 2
    assert _of("PodDisruptionBudget", _run(min_nodes=4))["spec"]["minAvailable"] == 3
    assert "PodDisruptionBudget" not in {each["kind"] for each in _run(nodes=1, min_nodes=1)}


@pytest.mark.parametrize("launcher", _LAUNCHERS)
def test_queue_and_priority_are_the_users(launcher: str) -> None:
    found = _run(launcher, queue="gpus", priority_class="high")
    queued = [each["kind"] for each in found if "kueue.x-k8s.io/queue-name" in each["metadata"]["labels"]]
    assert queued == [found[-1]["kind"]]
    assert all(each["spec"]["priorityClassName"] == "high" for each in pod_templates(list(found)))
    assert "suspend" not in found[-1]["spec"], "it is Kueue's, or whoever stops the run"


def test_a_namespace_allows_no_more_than_its_fabric_needs() -> None:
    def level(family: str) -> str:
        labels = namespace_objects(FAMILIES[family], "c", "ann")[0]["metadata"]["labels"]
        return str(labels["pod-security.kubernetes.io/enforce"])

    assert level("aws-p5") == "restricted"
    assert level("azure-nd-h100-v5") == "privileged"


@pytest.mark.parametrize("name", ["default", "kube-system"])
def test_a_namespace_that_came_with_the_cluster_is_left_alone(name: str) -> None:
    assert namespace_objects(replace(FAMILIES["kubernetes-cpu"], namespace=name), "c", "ann") == ()


def test_a_probe_asks_for_no_gpu_and_sees_what_the_run_would_see() -> None:
    target = FAMILIES["gcp-a3-mega"]
    found = probe_objects(workload("gcp-a3-mega"), target, profile(target))
    job = _of("Job", found)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert job["metadata"]["name"] == "dlrm-probe"
    assert container["command"] == ["python", "-m", "cloudrec.pod", "probe"]
    assert container["args"] == ["--dataset", "gs://bucket/data/criteo", "--results", "gs://bucket/runs/dlrm"]
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert pod["nodeSelector"] == dict(target.node_selector)
    assert {each["key"] for each in pod["tolerations"]} >= {"nvidia.com/gpu"}
    assert "initContainers" not in pod
    assert {
        each["metadata"]["name"] for each in found if each["kind"] not in ("Namespace", "ServiceAccount")
    } == {"dlrm-probe"}


@pytest.mark.parametrize(
    "flags", [("--dataset_path", "a", "--dataset-path", "s3://b/c"), ("--dataset-path=s3://b/c",)]
)
def test_a_probe_looks_at_the_dataset_that_the_trainer_would_take(flags: tuple[str, ...]) -> None:
    target = FAMILIES["aws-p5"]
    found = probe_objects(workload(flags=flags), target, profile(target))
    (container,) = _of("Job", found)["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["--dataset", "s3://b/c"]


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
def test_a_file_system_of_the_cluster_is_mounted_where_a_run_names_it(
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
        assert claims == [{"claimName": "cloudrec-lustre"}] * len(mounted)
        assert ("a" in template["metadata"].get("annotations", {})) == bool(mounted)


def test_the_guard_may_stop_runs_and_no_more() -> None:
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
    verbs = {verb for rule in _of("Role", found)["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "list", "patch"}
    assert _of("CronJob", found)["spec"]["concurrencyPolicy"] == "Forbid"


def test_a_guard_that_closes_nodes_may_do_that_and_see_which_cluster_it_is_in() -> None:
    guarding = Guarding(cluster="c", owner="ann", image=IMAGE, cordons=True)
    found = guard_objects(FAMILIES["kubernetes-gpu"], guarding)
    assert [each["kind"] for each in found][:2] == ["ClusterRole", "ClusterRoleBinding"]
    nodes, namespaces = _of("ClusterRole", found)["rules"]
    assert (nodes["resources"], nodes["verbs"]) == (["nodes"], ["get", "list", "patch"])
    assert (namespaces["resourceNames"], namespaces["verbs"]) == (["kube-system"], ["get"])


def test_a_thousand_workers_take_no_longer_than_one() -> None:
    begin = time.perf_counter()
    found = _run(nodes=1000, min_nodes=1000)
    assert time.perf_counter() - begin < 2
    assert _of("Job", found)["spec"]["completions"] == 1000
    assert len(json.dumps(found)) < len(json.dumps(_run(nodes=4, min_nodes=4))) + 100


@pytest.mark.parametrize(
    ("launcher", "longest"), [("torchrun", 57), ("pytorchjob", 53), ("trainjob", 47), ("rayjob", 47)]
)
def test_a_name_may_be_as_long_as_its_pods_names_allow(launcher: str, longest: int) -> None:
    assert _run(launcher, run="r" * longest, nodes=100)
    with pytest.raises(SpecError, match=rf"has {longest + 1} characters.* {longest} is the limit") as refused:
        _run(launcher, run="r" * (longest + 1), nodes=100)
    assert "--name" in str(refused.value.remedy)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": ""}, "there is no image"),
        ({"image": "a b"}, "no reference to an image"),
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
def test_what_kubernetes_would_not_take_is_refused_at_once(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        _run(**changes)


def test_what_only_sounds_like_a_secret_is_none() -> None:
    environment = {
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/t",
        "MAX_TOKENS": "5",
        "TOKENIZERS_PARALLELISM": "false",
    }
    assert _run(environment=environment)


def test_a_store_of_the_users_own_is_reached_at_its_port() -> None:
    policy = _of("NetworkPolicy", _run(environment={"AWS_ENDPOINT_URL": "http://store.example:9000"}))
    assert policy["spec"]["egress"][-1]["ports"] == [
        {"protocol": "TCP", "port": 443},
        {"protocol": "TCP", "port": 9000},
    ]


def test_a_launcher_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="no launcher 'slurm' for Kubernetes") as refused:
        _run("slurm")
    assert refused.value.remedy == "use one of torchrun, pytorchjob, trainjob, rayjob"

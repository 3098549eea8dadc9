"""The settings of a pod for the fabric of its node."""

from __future__ import annotations

import re

import pytest

from cloudrec.errors import SpecError
from cloudrec.transport import Profile, advise, profile_of, profiles
from cloudrec.transport.versions import fits

EVERY = pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.name)


@pytest.mark.parametrize(
    ("fabric", "machine", "name"),
    [
        ("efa", "p4d.24xlarge", "aws-p4d"),
        ("efa", "p4de.24xlarge", "aws-p4d"),
        ("efa", "p5.48xlarge", "aws-p5"),
        ("efa", "p5en.48xlarge", "aws-p5en"),
        ("efa", "trn9.48xlarge", "efa"),
        ("tcp", "g5.xlarge", "aws-g"),
        ("tcp", "g6.xlarge", "aws-g"),
        ("infiniband", "Standard_ND96asr_v4", "azure-nd-v4"),
        ("infiniband", "Standard_ND96amsr_A100_v4", "azure-nd-v4"),
        ("infiniband", "Standard_ND96isr_H100_v5", "azure-nd-v5"),
        ("tcp", "Standard_NC4as_T4_v3", "azure-nc-t4"),
        ("tcp", "a2-highgpu-8g", "gcp-fast-socket"),
        ("tcp", "g2-standard-4", "gcp-g2"),
        ("tcpx", "a3-highgpu-8g", "gcp-a3-high"),
        ("tcpxo", "a3-megagpu-8g", "gcp-a3-mega"),
        ("infiniband", "", "infiniband"),
        ("tcp", "", "tcp"),
        ("none", "", "cpu"),
    ],
)
def test_every_instance_type_has_a_profile(fabric: str, machine: str, name: str) -> None:
    found = profile_of(fabric, machine)
    assert (found.name, found.fabric) == (name, fabric)


def test_an_unknown_fabric_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SpecError, match="'roce'") as refused:
        profile_of("roce", "")
    assert "infiniband" in str(refused.value.remedy)


@EVERY
def test_every_setting_has_a_reason_and_a_source_and_is_unique(profile: Profile) -> None:
    assert len(profile.environment) == len(profile.settings)
    assert not [each.name for each in profile.settings if len(each.reason) < 10 or " " not in each.source]


@EVERY
def test_obsolete_and_harmful_settings_are_never_emitted(profile: Profile) -> None:
    assert advise(profile.environment, profile.fabric) == []
    for sidecar in profile.sidecars:
        assert advise(sidecar.environment, profile.fabric) == []


@EVERY
def test_every_check_of_a_profile_is_implemented(profile: Profile) -> None:
    for pattern in (profile.expects.nccl_log, profile.expects.nccl_fallback):
        re.compile(pattern)
    assert bool(profile.expects.nccl_log) == (profile.fabric != "none")
    assert profile.expects.minimum_cards == 0 or profile.expects.cards
    if profile.expects.nccl_log:  # or the line would never be written
        assert profile.environment["NCCL_DEBUG"] == "INFO"
        assert {"INIT", "NET"} <= set(profile.environment["NCCL_DEBUG_SUBSYS"].split(","))


@EVERY
def test_no_container_is_privileged_and_the_trainer_has_only_the_capabilities_of_its_fabric(
    profile: Profile,
) -> None:
    wanted = ("IPC_LOCK",) if profile.fabric in {"infiniband", "rdma", "tcpx"} else ()
    assert profile.capabilities == wanted
    allowed = {"NET_ADMIN", "NET_BIND_SERVICE"}
    assert {name for each in profile.sidecars for name in each.capabilities} <= allowed


@pytest.mark.parametrize(
    ("fabric", "line"),
    [
        ("efa", "NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)"),
        ("infiniband", "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.5.121<0>"),
        ("tcpx", "NCCL INFO NET/GPUDirectTCPX ver. 3.1.9."),
        ("rdma", "NCCL INFO NET/gIB : Initializing gIB v1.0.5"),
        ("rdma", "NCCL INFO Using network gIB"),
        ("tcpxo", "NCCL INFO NET/FasTrak v1.0.15"),
        ("tcp", "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"),
    ],
)
def test_the_nccl_log_line_of_the_transport_is_recognized(fabric: str, line: str) -> None:
    for name in ("efa", "infiniband", "rdma", "tcpx", "tcpxo"):
        expects = profile_of(name, "").expects
        assert bool(re.search(expects.nccl_log, line)) == (name == fabric)
        assert bool(re.search(expects.nccl_fallback, line)) == (fabric == "tcp")
    assert bool(re.search(profile_of("tcp", "").expects.nccl_log, line)) == (fabric == "tcp")


def test_a2_machines_use_fast_socket_and_not_plain_sockets() -> None:
    expects = profile_of("tcp", "a2-highgpu-8g").expects
    assert re.search(expects.nccl_log, "NCCL INFO NET/FastSocket : Using [0]eth0:10.0.0.6<0>")
    plain = "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.6<0>"
    assert not re.search(expects.nccl_log, plain)
    assert re.search(expects.nccl_fallback, plain)


def test_libfabric_over_tcp_is_a_fallback() -> None:
    expects = profile_of("efa", "p5.48xlarge").expects
    line = "NCCL INFO NET/OFI Selected provider is tcp, fabric is 10.0.0.0/16 (found 1 nics)"
    assert re.search(expects.nccl_fallback, line)
    assert not re.search(expects.nccl_log, line)


def test_a_setting_depends_on_the_version_of_its_library() -> None:
    new, old = profile_of("tcp", ""), profile_of("tcp", "", versions={"torch": "2.6.0+cu124"})
    assert "TORCH_FR_BUFFER_SIZE" in new.environment
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in new.environment
    assert "TORCH_FR_BUFFER_SIZE" not in old.environment
    assert old.environment["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"


@pytest.mark.parametrize(
    ("version", "wanted", "answer"),
    [
        ("2.13.0", ">=2.9", True),
        ("2.9.0", ">=2.9", True),
        ("2.9.0", "<2.9", False),
        ("v0.20.0", ">=0.19,<0.21", True),
        ("2.8.1+cu128", ">=2.9", False),
        ("", ">=2.9", True),
        ("2.10", "<2.9", False),
    ],
)
def test_versions_are_compared_by_number(version: str, wanted: str, answer: bool) -> None:  # noqa: FBT001
    assert fits(version, wanted) is answer


def test_only_whole_nodes_request_adapters_and_huge_pages() -> None:
    p5 = profile_of("efa", "p5.48xlarge")
    assert p5.pod_resources(8) == {
        "nvidia.com/gpu": "8",
        "vpc.amazonaws.com/efa": "32",
        "hugepages-2Mi": "5120Mi",
    }
    assert p5.pod_resources(8, 0) == {"nvidia.com/gpu": "8"}
    assert profile_of("none", "").pod_resources(0) == {}


@pytest.mark.parametrize(
    ("fabric", "name", "value", "harmful"),
    [
        ("efa", "FI_EFA_USE_DEVICE_RDMA", "1", False),
        ("efa", "FI_PROVIDER", "efa", True),
        ("efa", "NCCL_PROTO", "simple", True),
        ("efa", "RDMAV_FORK_SAFE", "1", True),
        ("efa", "NCCL_NSOCKS_PERTHREAD", "4", True),
        ("efa", "NCCL_TREE_THRESHOLD", "0", False),
        ("efa", "NCCL_IB_DISABLE", "1", False),
        ("infiniband", "NCCL_IB_DISABLE", "1", True),
        ("infiniband", "UCX_TLS", "tcp", False),
        ("infiniband", "NCCL_SOCKET_IFNAME", "ens3", True),
        ("tcp", "NCCL_GPUDIRECTTCPX_CTRL_DEV", "eth0", True),
        ("tcpx", "NCCL_FASTRAK_CTRL_DEV", "eth0", True),
        ("tcpxo", "NCCL_PROTO", "Simple", True),
        ("tcpxo", "NCCL_NVLS_ENABLE", "0", True),
        ("tcp", "NCCL_DEBUG", "WARN", True),
        ("tcp", "NCCL_TIMEOUT", "1800", False),
    ],
)
def test_an_obsolete_setting_is_reported_with_reason_and_remedy(
    fabric: str, name: str, value: str, harmful: bool  # noqa: FBT001
) -> None:  # fmt: skip
    (advice,) = advise({"OMP_NUM_THREADS": "4", name: value}, fabric)
    assert (advice.name, advice.value, advice.harmful) == (name, value, harmful)
    assert advice.reason
    assert advice.remedy
    assert advice.source


@pytest.mark.parametrize(
    ("fabric", "name", "value"),
    [
        ("infiniband", "NCCL_IB_DISABLE", "0"),
        ("tcpx", "NCCL_NSOCKS_PERTHREAD", "4"),
        ("tcpxo", "NCCL_PROTO", "Simple,LL128"),
        ("tcp", "NCCL_DEBUG", "TRACE"),
        ("efa", "FI_EFA_USE_HUGE_PAGE", "0"),
        ("efa", "NCCL_SOCKET_IFNAME", "^lo"),
    ],
)
def test_allowed_settings_are_not_reported(fabric: str, name: str, value: str) -> None:
    assert advise({name: value}, fabric) == []

"""Checks whether a node fits the run: its devices, cards and limits, and the transport that NCCL uses.

If a check fails, the pod ends with the values that were found and expected. If the run allows TCP, it prints
a warning and trains.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping  # noqa: TC003 - a dataclass's field
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.agent.checks import hardware
from cloudrec.errors import PreflightError
from cloudrec.transport import advise, profile_of
from cloudrec.transport.versions import fits
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloudrec.agent.settings import PodSettings
    from cloudrec.transport import Expected, Profile

_NCCL_S = 180.0
_SHM_SHARE = 0.9  # of the requested size; the file system uses some of it
_HUGE_PAGE_MIB = 2
_IPC_LOCK = 14  # the capability's number
_LINES = 3  # of NCCL's log in the facts
# The variables by which files describe the machine type to NCCL and its plug-in, which would continue without
# them: some are in the profile, and the plug-in's script sets the others.
_TYPE_FILES: Mapping[str, str] = MappingProxyType(
    {
        "NCCL_TOPO_FILE": "topology file",
        "NCCL_TUNER_CONFIG_PATH": "tuner configuration of the machine type",
        "NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE": "guest configuration of the machine type",
    }
)
# NCCL's src/graph/xml.cc, of a file that a plug-in has named, as aws-ofi-nccl does.
_NO_TOPOLOGY = r"Could not open XML topology file (?P<name>\S+)"
# What makes the device files that the beginning of a pattern names.
_MAKERS: Mapping[str, str] = MappingProxyType(
    {
        "/dev/nvidia": "NVIDIA's driver is not loaded, or the device plugin gave the pod no GPU",
        "/dev/infiniband": "the driver of the network cards is not loaded, or their device plugin gave none",
        "/dev/aperture": "the node has no aperture devices, which the installer of the plug-in makes",
    }
)
_GPU_DIRECT = r"GPU Direct RDMA (?P<state>Enabled|Disabled) for HCA \d+ '(?P<card>[^']*)'"
_NO_PLUGIN = r"NET/Plugin ?: (Could not find|No plugin found|Failed to)"
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


@dataclass(frozen=True, kw_only=True)
class Nccl:
    """The result of a process that used NCCL on a GPU.

    Args:
        gpus: number of GPUs that torch sees; -1 if torch is not installed.
        built_for_cuda: whether torch was built with CUDA.
        version: the version of the NCCL that torch uses, such as 2.29.7; empty if it is unknown.
        log: the lines of NCCL's log.
        error: the error; empty if there was none.
    """

    gpus: int = -1
    built_for_cuda: bool = False
    version: str = ""
    log: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """The result of a node's checks.

    Args:
        problems: a phrase for each failed check.
        notes: further remarks, such as obsolete settings.
        facts: the values that were found, for the log.
    """

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)


def assert_fit(
    settings: PodSettings, environment: Mapping[str, str], *, root: Path, say: Callable[[str], None]
) -> None:
    """Check this node against the profile of its fabric.

    Args:
        settings: the pod's settings.
        environment: the trainer's variables.
        root: the folder of the system's files: "/".
        say: prints a line to the pod's log.

    Raises:
        PreflightError: a check failed, and TCP is not allowed.
    """
    profile = profile_of(settings.fabric, settings.instance_type)
    has_gpus = settings.gpus > 0
    nccl = try_nccl(environment) if has_gpus else Nccl()
    report = examine(profile, settings, environment, nccl, root=root)
    say(f"node {settings.node or 'of unknown name'}: {json.dumps(report.facts)}")
    for note in report.notes:
        say(f"note: {note}")
    if not report.problems:
        return
    words = "; ".join(report.problems)
    if not settings.allow_tcp:
        raise PreflightError(
            f"this node is not fit for {profile.name} ({profile.fabric}): {words}",
            remedy="see `cloudrec doctor --cluster NAME`; with --allow-tcp it trains anyway, but slower",
        )
    say(f"WARNING: training nevertheless, since TCP is allowed: {words}")


def examine(
    profile: Profile, settings: PodSettings, environment: Mapping[str, str], nccl: Nccl, *, root: Path
) -> NodeReport:
    """Return the differences between the node and its profile; starts no process."""
    expected = profile.expects
    if settings.cards and expected.minimum_cards:
        expected = replace(expected, minimum_cards=settings.cards)
    if settings.hugepages_mib:
        expected = replace(expected, hugepages_2mi=settings.hugepages_mib // _HUGE_PAGE_MIB)
    gpus = hardware.matches(root, "/dev/nvidia[0-9]*")
    interfaces = _interfaces(profile, environment)
    facts: dict[str, object] = {"fabric": profile.fabric, "gpus": len(gpus), "torch_gpus": nccl.gpus}
    problems = [
        *_gpu_problems(settings, len(gpus), nccl),
        *(_absent(pattern) for pattern in expected.devices if not hardware.matches(root, pattern)),
        *(f"no {path}" for path in expected.files if not hardware.matches(root, path)),
        *_topology_problems(environment, nccl, root),
        *_card_problems(expected, facts, root),
        *_interface_problems(interfaces, expected, facts, root),
        *_limit_problems(expected, profile, facts, root),
    ]
    problems += _version_problems(expected, profile, nccl, facts)
    if nccl.log or nccl.error:
        problems += _nccl_problems(expected, nccl, facts)
    # The profile's own settings are no user's mistake.
    theirs = {name: value for name, value in environment.items() if profile.environment.get(name) != value}
    notes = [
        f"{each.name}={each.value} {'does harm' if each.harmful else 'does nothing'}: "
        f"{each.reason}; {each.remedy}"
        for each in advise(theirs, profile.fabric)
    ]
    return NodeReport(problems=tuple(problems), notes=tuple(notes), facts=facts)


def try_nccl(environment: Mapping[str, str]) -> Nccl:
    """Return the result of another process that counts the GPUs and uses NCCL on one of them."""
    # In another process, since this one would keep the GPU's memory and NCCL's threads while the ranks train.
    command = [sys.executable, "-P", "-m", "cloudrec.agent.checks.nccl"]
    variables = {**environment, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}
    variables.pop("NCCL_DEBUG_FILE", None)  # with it, NCCL would log to that file
    try:
        done = subprocess.run(
            command,
            env=variables,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_NCCL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Nccl(error=f"NCCL did not start within {_NCCL_S:g} s")
    lines = (done.stdout + done.stderr).splitlines()
    log = tuple(line for line in lines if "NCCL" in line or "NET/" in line)
    answers = [line for line in lines if line.startswith('{"gpus"')]
    if not answers:
        last = next((line for line in reversed(lines) if line.strip()), f"exit code {done.returncode}")
        return Nccl(log=log, error=f"torch did not start on this node: {last.strip()[:300]}")
    answer = safe_object(answers[-1])
    return Nccl(log=log, **answer)


def _gpu_problems(settings: PodSettings, files: int, nccl: Nccl) -> list[str]:
    wanted = settings.gpus
    if not wanted:
        return []
    problems = [f"{files} GPUs (/dev/nvidia*) of {wanted}"] if files < wanted else []
    if nccl.error:
        return problems  # `_nccl_problems` reports the error
    if nccl.gpus < 0:
        return [*problems, "torch is not installed in this image"]
    if not nccl.built_for_cuda:
        return [*problems, "this image's torch was built without CUDA: it would train on the CPU"]
    return [*problems, f"torch sees {nccl.gpus} GPUs of {wanted}"] if nccl.gpus < wanted else problems


def _card_problems(expected: Expected, facts: dict[str, object], root: Path) -> list[str]:
    problems = []
    if expected.cards:
        cards = hardware.matches(root, expected.cards)
        facts["cards"] = len(cards)
        if len(cards) < expected.minimum_cards:
            problems.append(f"{len(cards)} cards ({expected.cards}) of {expected.minimum_cards}")
    ports = hardware.infiniband_ports(root)
    if ports:
        facts["ports"] = [f"{port.name}:{port.state}:{port.link}" for port in ports]
    if expected.ports == "infiniband":
        ready = [port for port in ports if port.is_infiniband and port.is_active]
        if len(ready) < expected.minimum_cards:
            problems.append(f"{len(ready)} active InfiniBand ports of {expected.minimum_cards}")
    elif expected.ports == "all":
        down = [port.name for port in ports if not port.is_active]
        problems += [f"the card {name} is not active" for name in down]
    return problems


def _interfaces(profile: Profile, environment: Mapping[str, str]) -> list[str]:
    """Return the required interfaces: the profile's, with the first one replaced by those of the user."""
    named = {
        value
        for name in INTERFACES
        if (value := environment.get(name, "")) and re.fullmatch(r"[\w.]+(,[\w.]+)*", value)
    }
    theirs = [each for value in sorted(named) for each in value.split(",")]
    first = profile.environment.get(INTERFACES[1], "eth0")
    rest = [each for each in profile.expects.interfaces if each != first or not theirs]
    return list(dict.fromkeys([*theirs, *rest]))


def _interface_problems(
    interfaces: list[str], expected: Expected, facts: dict[str, object], root: Path
) -> list[str]:
    mtus = {name: hardware.mtu(root, name) for name in interfaces}
    facts["mtu"] = mtus
    problems = [f"no network interface {name}" for name, mtu in mtus.items() if mtu is None]
    short = {name: mtu for name, mtu in mtus.items() if mtu is not None and mtu < expected.mtu}
    return problems + [f"MTU {mtu} of {name}, below {expected.mtu}" for name, mtu in short.items()]


def _limit_problems(expected: Expected, profile: Profile, facts: dict[str, object], root: Path) -> list[str]:
    problems = []
    memlock, may_lock = hardware.memlock(), hardware.has_capability(root, _IPC_LOCK)
    facts |= {"memlock": memlock, "ipc_lock": may_lock}
    # A process with CAP_IPC_LOCK may pin any amount, whatever its limit.
    enough = memlock < 0 or may_lock or (0 <= expected.memlock <= memlock)
    if expected.memlock and not enough:
        wanted = "no limit" if expected.memlock < 0 else f"{expected.memlock} bytes"
        problems.append(f"{memlock} bytes may be locked in memory (memlock), of {wanted}")
    if expected.optmem:
        # Linux before 6.8 shows the value to the node alone.
        facts["optmem"] = optmem = hardware.socket_memory(root)
        if optmem is not None and optmem < expected.optmem:
            problems.append(
                f"{optmem} bytes of further memory for a socket (net.core.optmem_max), of {expected.optmem}"
            )
    if expected.hugepages_2mi:
        facts["hugepages_2mi"] = pages = hardware.free_huge_pages(root)
        if pages < expected.hugepages_2mi:
            problems.append(f"{pages} free huge pages of 2 MiB, of {expected.hugepages_2mi}")
    if expected.gpu_memory:
        facts["gpu_memory"] = by = hardware.gpu_memory_access(root)
        if not by:
            problems.append(
                "the cards cannot read GPU memory: the kernel module nvidia_peermem is not loaded, and there "
                "is no DMA-BUF, which needs NVIDIA's open kernel modules and Linux 5.12"
            )
    facts["shm_gib"] = shm = hardware.shared_memory_gib(root)
    if profile.fabric != "none" and shm < profile.shm_gib * _SHM_SHARE:
        problems.append(f"{shm:.1f} GiB of shared memory (/dev/shm), of {profile.shm_gib}")
    return problems


def _nccl_problems(expected: Expected, nccl: Nccl, facts: dict[str, object]) -> list[str]:
    chosen = [line for line in nccl.log if re.search(r"NET/|Using network|Selected [Pp]rovider", line)]
    facts["nccl"] = [line.partition("NCCL ")[2] or line for line in chosen[:_LINES]]
    if nccl.error:
        return [f"NCCL: {nccl.error}"]
    if not expected.nccl_log or any(re.search(expected.nccl_log, line) for line in chosen):
        return _gpu_direct_problems(expected, nccl)
    slower = next(
        (line for line in chosen if expected.nccl_fallback and re.search(expected.nccl_fallback, line)), None
    )
    chose = slower or next(iter(chosen), "nothing that it logs")
    problem = f"NCCL chose {chose.strip()!r}; its log should match {expected.nccl_log!r}"
    lacks = [line for line in chosen if re.search(_NO_PLUGIN, line)]
    if expected.plugin and lacks:
        problem = f"NCCL did not load the plug-in {expected.plugin} ({lacks[0].strip()!r}); {problem}"
    return [problem]


def _gpu_direct_problems(expected: Expected, nccl: Nccl) -> list[str]:
    """Return whether a card does not reach GPU memory: NCCL logs it for each card when it starts."""
    # NCCL's src/graph/topo.cc: "NET/%s : GPU Direct RDMA %s for HCA %d '%s'", with Enabled or Disabled.
    found = [each for line in nccl.log if (each := re.search(_GPU_DIRECT, line))]
    without = list(dict.fromkeys(each["card"] for each in found if each["state"] != "Enabled"))
    if not expected.gpu_direct or (found and not without):
        return []
    where = f"NCCL reports it as disabled for {', '.join(without)}" if found else "NCCL does not report it"
    return [f"no GPUDirect RDMA: {where}, so data passes the CPU's memory"]


def _version_problems(
    expected: Expected, profile: Profile, nccl: Nccl, facts: dict[str, object]
) -> list[str]:
    if not nccl.version:
        return []
    facts["nccl_version"] = nccl.version
    if not expected.nccl_version or fits(nccl.version, expected.nccl_version):
        return []
    known = next(
        (f" {profile.libraries[each]}" for each in (expected.plugin,) if each in profile.libraries), ""
    )
    needs = f"the plug-in {expected.plugin}{known}" if expected.plugin else "this fabric"
    return [f"NCCL {nccl.version}; {needs} needs {expected.nccl_version}"]


def _absent(pattern: str) -> str:
    """Return that no device file matches, with the driver or plug-in that would make it."""
    causes = [cause for prefix, cause in _MAKERS.items() if pattern.startswith(prefix)]
    return f"no {pattern}: {causes[0]}" if causes else f"no {pattern}"


def _topology_problems(environment: Mapping[str, str], nccl: Nccl, root: Path) -> list[str]:
    """Return that a file that describes the machine type does not exist; NCCL would continue without it."""
    named = [(what, environment.get(name, ""), name) for name, what in _TYPE_FILES.items()]
    problems = [
        f"no {what} {path} ({name})"
        for what, path, name in named
        if path and not hardware.matches(root, path)
    ]
    unread = dict.fromkeys(each["name"] for line in nccl.log if (each := re.search(_NO_TOPOLOGY, line)))
    seen = {path for _, path, _ in named}
    return problems + [f"no topology file {name}: NCCL cannot open it" for name in unread if name not in seen]

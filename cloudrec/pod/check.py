"""Whether a node is what the run needs: devices, cards, limits, and the way that NCCL takes.

Nothing trains blind: a node that falls short ends its pod with what was found and what was expected, unless
the run allows TCP, and then that is said aloud.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping  # noqa: TC003 - a dataclass's field
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError
from cloudrec.plan.transport import advise, profile_of
from cloudrec.pod import found

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloudrec.plan.transport import Expected, Profile
    from cloudrec.pod.settings import PodSettings

_NCCL_S = 180.0
_SHM_SHARE = 0.9  # of what was asked for: a file system's own needs
_IPC_LOCK = 14  # the capability's number
_LINES = 3  # of NCCL's log that are worth repeating
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


@dataclass(frozen=True, kw_only=True)
class Nccl:
    """What a process that used a GPU and NCCL has told.

    Args:
        gpus: how many GPUs torch sees; -1 where torch is not installed.
        built_for_cuda: whether torch can use any.
        log: NCCL's own lines.
        error: what went wrong; empty when all went well.
    """

    gpus: int = -1
    built_for_cuda: bool = False
    log: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found on a node.

    Args:
        problems: how it falls short of what was expected, one a line.
        notes: what else is worth telling.
        facts: figures, for the log.
    """

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)


def assert_fit(
    settings: PodSettings, environment: Mapping[str, str], *, root: Path, say: Callable[[str], None]
) -> None:
    """Check this node against what its fabric's profile expects.

    Args:
        settings: what the manifest says.
        environment: the trainer's variables.
        root: where the system's files are: "/".
        say: tells what was found.

    Raises:
        PreflightError: it falls short, and TCP is not allowed.
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
            remedy="see `cloudrec doctor --cluster NAME`; --allow-tcp trains in spite of it, slower",
        )
    say(f"WARNING: training in spite of this, since TCP is allowed: {words}")


def examine(
    profile: Profile, settings: PodSettings, environment: Mapping[str, str], nccl: Nccl, *, root: Path
) -> Report:
    """Compare what is there with what the profile expects; nothing is started."""
    expected = profile.expects
    gpus = found.matches(root, "/dev/nvidia[0-9]*")
    interfaces = _interfaces(profile, environment)
    facts: dict[str, object] = {"fabric": profile.fabric, "gpus": len(gpus), "torch_gpus": nccl.gpus}
    problems = [
        *_gpu_problems(settings, len(gpus), nccl),
        *(f"no {pattern}" for pattern in expected.devices if not found.matches(root, pattern)),
        *(f"no {path}" for path in expected.files if not found.matches(root, path)),
        *_card_problems(expected, profile.fabric, facts, root),
        *_interface_problems(interfaces, expected, facts, root),
        *_limit_problems(expected, profile, facts, root),
    ]
    if nccl.log or nccl.error:
        problems += _nccl_problems(expected, nccl, facts)
    theirs = {name: value for name, value in environment.items() if profile.environment.get(name) != value}
    notes = [
        f"{each.name}={each.value} {'does harm' if each.harmful else 'does nothing'}: "
        f"{each.reason}; {each.remedy}"
        for each in advise(theirs, profile.fabric)
    ]
    return Report(problems=tuple(problems), notes=tuple(notes), facts=facts)


def try_nccl(environment: Mapping[str, str]) -> Nccl:
    """Have a process of its own count GPUs and use NCCL on one of them."""
    command = [sys.executable, "-m", "cloudrec.pod.nccl"]
    told = {**environment, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    told.pop("NCCL_DEBUG_FILE", None)
    try:
        done = subprocess.run(
            command, env=told, capture_output=True, text=True, errors="replace", timeout=_NCCL_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Nccl(error=f"NCCL did not start within {_NCCL_S:g} s")
    lines = (done.stdout + done.stderr).splitlines()
    log = tuple(line for line in lines if "NCCL" in line or "NET/" in line)
    answers = [line for line in lines if line.startswith('{"gpus"')]
    if not answers:
        last = next((line for line in reversed(lines) if line.strip()), f"exit code {done.returncode}")
        return Nccl(log=log, error=f"torch did not start on this node: {last.strip()[:300]}")
    answer = json.loads(answers[-1])
    return Nccl(log=log, **answer)


def _gpu_problems(settings: PodSettings, files: int, nccl: Nccl) -> list[str]:
    wanted = settings.gpus
    if not wanted:
        return []
    problems = [f"{files} GPUs (/dev/nvidia*) of {wanted}"] if files < wanted else []
    if nccl.error:
        return problems  # told with NCCL's own
    if nccl.gpus < 0:
        return [*problems, "torch is not installed in this image"]
    if not nccl.built_for_cuda:
        return [*problems, "this image's torch was built without CUDA: it would train on the CPU"]
    return [*problems, f"torch sees {nccl.gpus} GPUs of {wanted}"] if nccl.gpus < wanted else problems


def _card_problems(expected: Expected, fabric: str, facts: dict[str, object], root: Path) -> list[str]:
    problems = []
    if expected.cards:
        cards = found.matches(root, expected.cards)
        facts["cards"] = len(cards)
        if len(cards) < expected.minimum_cards:
            problems.append(f"{len(cards)} cards ({expected.cards}) of {expected.minimum_cards}")
    ports = found.infiniband_ports(root)
    if ports:
        facts["ports"] = [f"{port.name}:{port.state}:{port.link}" for port in ports]
    if fabric == "infiniband":
        ready = [port for port in ports if port.is_infiniband and port.is_active]
        if len(ready) < expected.minimum_cards:
            problems.append(f"{len(ready)} active InfiniBand ports of {expected.minimum_cards}")
    elif fabric == "efa":
        down = [port.name for port in ports if not port.is_active]
        problems += [f"the card {name} is not active" for name in down]
    return problems


def _interfaces(profile: Profile, environment: Mapping[str, str]) -> list[str]:
    """Return the interfaces that must be there: the profile's, or those that the user has named instead."""
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
    mtus = {name: found.mtu(root, name) for name in interfaces}
    facts["mtu"] = mtus
    problems = [f"no network interface {name}" for name, mtu in mtus.items() if mtu is None]
    short = {name: mtu for name, mtu in mtus.items() if mtu is not None and mtu < expected.mtu}
    return problems + [f"MTU {mtu} of {name}, below {expected.mtu}" for name, mtu in short.items()]


def _limit_problems(expected: Expected, profile: Profile, facts: dict[str, object], root: Path) -> list[str]:
    problems = []
    memlock, may_lock = found.memlock(), found.has_capability(root, _IPC_LOCK)
    facts |= {"memlock": memlock, "ipc_lock": may_lock}
    enough = memlock < 0 or may_lock or (0 <= expected.memlock <= memlock)
    if expected.memlock and not enough:
        wanted = "no limit" if expected.memlock < 0 else f"{expected.memlock} bytes"
        problems.append(f"{memlock} bytes may be locked in memory (memlock), of {wanted}")
    if expected.hugepages_2mi:
        facts["hugepages_2mi"] = pages = found.free_huge_pages(root)
        if pages < expected.hugepages_2mi:
            problems.append(f"{pages} free huge pages of 2 MiB, of {expected.hugepages_2mi}")
    modules = found.kernel_modules(root) if expected.kernel_modules else frozenset()
    problems += [
        f"the kernel module {name} is not loaded" for name in expected.kernel_modules if name not in modules
    ]
    facts["shm_gib"] = shm = found.shared_memory_gib(root)
    if profile.fabric != "none" and shm < profile.shm_gib * _SHM_SHARE:
        problems.append(f"{shm:.1f} GiB of shared memory (/dev/shm), of {profile.shm_gib}")
    return problems


def _nccl_problems(expected: Expected, nccl: Nccl, facts: dict[str, object]) -> list[str]:
    telling = [line for line in nccl.log if re.search(r"NET/|Using network|Selected [Pp]rovider", line)]
    facts["nccl"] = [line.partition("NCCL ")[2] or line for line in telling[:_LINES]]
    if nccl.error:
        return [f"NCCL: {nccl.error}"]
    if not expected.nccl_log or any(re.search(expected.nccl_log, line) for line in telling):
        return []
    slower = next(
        (line for line in telling if expected.nccl_fallback and re.search(expected.nccl_fallback, line)), None
    )
    chose = slower or next(iter(telling), "nothing that it tells of")
    return [f"NCCL chose {chose.strip()!r}; its log was to match {expected.nccl_log!r}"]

"""The trainer as a component of TorchX: `torchx run -s SCHEDULER cloudrec.torchx:dlrm -j 2x8 -- FLAGS`.

Each replica runs cloudrec's agent, one on each node. The agent sets and checks the machine's transport,
starts torchrun, restarts ranks from the newest checkpoint, and does not retry final errors. In `torchx log`,
a rank's lines begin with its number: `[rank 0] ...`.

TorchX's dependencies conflict with those of the Kubernetes client, so this module imports only torchx.specs,
the contract and the standard library. TorchX reads the text of a component instead of importing it, and
inspects its annotations: these must be objects of the types that it knows, hence the names from `typing`.
"""

import json
import re
import shlex
import warnings
from importlib.resources import files
from pathlib import Path
from typing import Any, Dict, List, Optional

from torchx import specs

from cloudrec_contract.layout import checkpoints_uri, node_range
from cloudrec_contract.settings import underscored_flags

_J = re.compile(r"(?:(?:(\d+):)?(\d+)x)?(\d+)")
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_MACHINE = "node.kubernetes.io/instance-type"
_IN_PODS = "/cloudrec/"  # the folder of a profile's paths in cloudrec's pods
_PROFILES = "transport/plain.json"


def dlrm(
    *flags: str,
    j: str = "1x1",
    machine: str = "",
    fabric: str = "",
    h: str = "",
    cpu: int = 0,
    gpu: int = -1,
    memMB: int = 0,
    image: str = "",
    name: str = "dlrm",
    results: str = "",
    env: Optional[Dict[str, str]] = None,
    mounts: Optional[List[str]] = None,
    max_restarts: int = 3,
    max_retries: int = 0,
    allow_tcp: bool = False,
    rdzv_port: int = 29500,
    python: str = "python",
) -> specs.AppDef:
    """Train a sharded DLRM by cloudrec's trainer, with the transport settings of the machine it runs on.

    What follows -- are flags of `python -m trainer`. Where nodes share no file system, give --results.

    Args:
        flags: flags of the trainer; `python -m trainer --help` lists them
        j: [[min_nodes:]nodes x]processes on each node, such as 2x8
        machine: the cloud's name of the machine, such as p5.48xlarge: it decides the transport
        fabric: efa, infiniband or tcp, for a machine that is not in the catalogue
        h: a named resource of TorchX, in place of cpu, gpu, memMB and machine
        cpu: cores of each node; 0 asks for none
        gpu: GPUs of each node; by default as many as processes where the machine or the fabric is named
        memMB: memory of each node in MB; 0 asks for none
        image: container image of the trainer (Kubernetes); the folder of the job elsewhere
        name: name of the job
        results: URI of a folder for checkpoints, metrics and logs; a job with the same URI continues there
        env: variables, such as A=1,B=2; they beat those of the transport
        mounts: mounts, such as type=bind,src=/data,dst=/data,readonly
        max_restarts: how often ranks are started again after a crash, within the job
        max_retries: how often the scheduler may start the job again, after a preemption for one
        allow_tcp: train even where the machine's transport is not found
        rdzv_port: where nodes meet, on the first one
        python: the interpreter that has cloudrec and the trainer, on the nodes
    """
    fewest, nodes, processes = _nodes(j)
    resource = _resource(cpu, gpu, memMB, h)
    machine = machine or str(resource.capabilities.get(_MACHINE, ""))
    profile = _profile(machine, fabric)
    if profile:
        _require_no_daemon(profile)
        resource.gpu = processes if gpu < 0 and not h and profile["fabric"] != "none" else resource.gpu
        resource.devices = {**profile["devices"], **resource.devices}
        resource.capabilities = {**resource.capabilities, **({_MACHINE: machine} if machine else {})}
    own = {
        "CLOUDREC_RUN": specs.macros.app_id,
        "CLOUDREC_RESULTS": results,
        "CLOUDREC_FABRIC": profile["fabric"] if profile else "",
        "CLOUDREC_INSTANCE_TYPE": machine,
        "CLOUDREC_GPUS": str(resource.gpu if profile else 0),
        "CLOUDREC_PROFILE": profile["script"] if profile else "",
        "CLOUDREC_ALLOW_TCP": str(int(allow_tcp)),
        "CLOUDREC_MAX_RESTARTS": str(max_restarts),
        "POD_NAME": f"{specs.macros.app_id}-{specs.macros.replica_id}",
        "PYTHONUNBUFFERED": "1",
    }
    variables = {**own, **(profile["environment"] if profile else {}), **(env or {})}
    ours = set(variables) - set(env or {})
    elastic = {
        "--nnodes": node_range(fewest, nodes),
        "--nproc-per-node": str(processes),
        "--rdzv-backend": "c10d",
        "--rdzv-id": specs.macros.app_id,
    }
    script = [
        *_exports(variables, ours),
        _command(python, elastic, _meeting(nodes, rdzv_port), _program(python, results, flags)),
    ]
    role = specs.Role(
        name="trainer",
        image=image or str(Path.cwd()),
        entrypoint="bash",
        args=["-c", "\n".join(script)],
        env={key: value for key, value in variables.items() if value and _is_plain(key, value, ours)},
        num_replicas=nodes,
        min_replicas=fewest if fewest != nodes else None,
        max_retries=max_retries,
        resource=resource,
        port_map={"c10d": rdzv_port},
        mounts=[*_host_mounts(profile), *(specs.parse_mounts(mounts) if mounts else [])],
    )
    return specs.AppDef(name=name, roles=[role])


def file_contents(path: str) -> Optional[str]:
    """Return the text of one of TorchX's files, or of this module for the path `cloudrec.torchx`, or None.

    This function is an entry point of the group `torchx.file`, which TorchX calls to find a component.
    """
    if path == "cloudrec.torchx":
        return files("cloudrec").joinpath("torchx.py").read_text(encoding="utf-8")
    builtin = Path(specs.__file__).parents[2] / path
    return builtin.read_text(encoding="utf-8") if builtin.is_file() else None


def _nodes(j: str) -> tuple[int, int, int]:
    """Return the fewest nodes, the nodes, and the processes on each."""
    match = _J.fullmatch(j)
    if match is None:
        raise SystemExit(f"error: -j is {j!r}; it is NODESxPROCESSES, such as 2x8, or FEWEST:NODESxPROCESSES")
    nodes = int(match[2] or 1)
    fewest, processes = int(match[1] or nodes), int(match[3])
    if not 1 <= fewest <= nodes or processes < 1:
        raise SystemExit(f"error: -j is {j!r}; it needs at least 1 process, and as many nodes as are to stay")
    return fewest, nodes, processes


def _resource(cpu: int, gpu: int, memory_mb: int, named: str) -> Any:
    if named:
        return specs.resource(h=named)
    return specs.Resource(cpu=cpu, gpu=max(gpu, 0), memMB=memory_mb)


def _profile(machine: str, fabric: str) -> Optional[Dict[str, Any]]:
    """Return the transport profile of a machine or a fabric; None if neither is given."""
    if not machine and not fabric:
        return None
    rows = json.loads(files("cloudrec").joinpath(_PROFILES).read_text(encoding="utf-8"))["profiles"]  # noqa: TID251 - a shipped table; TorchX loads this file alone
    fabrics = sorted({row["fabric"] for row in rows})
    named = [row for row in rows if machine in row["machines"] and fabric in ("", row["fabric"])]
    # A fabric without a general profile has one kind of machine.
    of_fabric = sorted(
        (row for row in rows if row["fabric"] == fabric), key=lambda row: bool(row["machines"])
    )
    for row in (*named, *of_fabric):
        return dict(row)
    what = f"machine {machine!r}" if machine else f"fabric {fabric!r}"
    raise SystemExit(f"error: the {what} is not known; name one of {', '.join(fabrics)} with --fabric")


def _require_no_daemon(profile: Dict[str, Any]) -> None:
    """Exit with an error if a transport needs a daemon; warn if it needs capabilities: TorchX has neither."""
    if profile["daemons"]:
        raise SystemExit(
            f"error: {profile['fabric']} needs the daemon {profile['daemons'][0]} beside the trainer, and "
            "TorchX knows no such thing: use `cloudrec train`, or --fabric tcp, which is slower"
        )
    if profile["capabilities"]:
        warnings.warn(
            f"on Kubernetes {profile['fabric']} needs {', '.join(profile['capabilities'])}, which TorchX "
            "cannot ask for: use `cloudrec train` there",
            stacklevel=3,
        )


def _host_mounts(profile: Optional[Dict[str, Any]]) -> List[Any]:
    return [
        specs.BindMount(src_path=src, dst_path=dst, read_only=read_only)
        for src, dst, read_only in (profile or {}).get("mounts", ())
    ]


def _is_plain(name: str, value: str, ours: set[str]) -> bool:
    """Return whether the scheduler can set a variable; else the role's shell sets it."""
    # Slurm's tools end a value at a comma.
    needs_shell = name in ours and (name in _INTERFACES or value.startswith(_IN_PODS))
    return not needs_shell and "," not in value


def _exports(variables: Dict[str, str], ours: set[str]) -> List[str]:
    """Return the shell's exports: this node's folders, and the variables that the scheduler cannot set."""
    root = "$${CLOUDREC_WORK:-$$PWD/cloudrec-runs}"
    lines = [
        f'export CLOUDREC_JOB="{root}/{specs.macros.app_id}"',
        f'export CLOUDREC_WORK="$$CLOUDREC_JOB/node-{specs.macros.replica_id}"',
    ]
    for name, value in variables.items():
        if not value or _is_plain(name, value, ours):
            continue
        if name in ours and name in _INTERFACES:
            lines.append(f"[ ! -e /sys/class/net/{value} ] || export {name}={value}")
        elif name in ours and value.startswith(_IN_PODS):
            lines.append(f'export {name}="$$CLOUDREC_WORK/{value.removeprefix(_IN_PODS)}"')
        else:
            lines.append(f"export {name}={shlex.quote(value)}")
    return lines


def _meeting(nodes: int, port: int) -> str:
    """Return the rendezvous endpoint for the shell; each scheduler has a variable with the first node."""
    return "localhost:0" if nodes == 1 else f"$${{{specs.macros.rank0_env}:=localhost}}:{port}"


def _program(python: str, results: str, flags: tuple[str, ...]) -> List[str]:
    """Return the trainer's command, quoted; the user's flags come last, and so override the others."""
    kept = shlex.quote(checkpoints_uri(results)) if results else '"$$CLOUDREC_JOB/checkpoints"'
    asked = map(shlex.quote, underscored_flags(flags))
    return [shlex.quote(python), "-P", "-m", "trainer", "--checkpoint_dir", kept, *asked]


def _command(python: str, elastic: Dict[str, str], meeting: str, program: List[str]) -> str:
    """Return the line that starts the agent, with `exec`, so that the agent gets the job's signals."""
    interpreter = shlex.quote(python)
    words = [
        *("exec", interpreter, "-P", "-m", "cloudrec.agent", "agent", "--", "torchrun"),
        *(f"{name}={value}" for name, value in elastic.items()),
        f'--rdzv-endpoint="{meeting}"',
        *("--no-python", interpreter, "-P", "-m", "cloudrec.agent", "rank", "--"),
        *program,
    ]
    return " ".join(words)

"""What is generated in each area: which files and words are bad, and which command or reader gets them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.documents import DOCUMENTS, YAML_READERS
from tests.fuzz.inputs import BadInput, damaged, json_files, json_lines, texts, words, yaml_files
from tests.fuzz.letters import env_files, notify
from tests.fuzz.readers import TEXT_READERS, sealed

SPEC: dict[str, Any] = {
    "version": 1,
    "cluster": {
        "provider": "local",
        "name": "good",
        "owner": "me",
        "region": "us-east-1",
        "zones": ["a", "b"],
        "instance_types": ["p5.48xlarge"],
        "nodes": 2,
        "capacity": "spot",
        "ttl": "8h",
        "budget_usd": 100,
        "access": "auto",
        "kubernetes_version": "1.33",
        "expires": "2030-01-01T00:00:00Z",
        "autostop": "30m",
        "settings": {"storage": "./storage", "min_free_gib": 1},
    },
    "train": {
        "name": "first-run",
        "nproc_per_node": 1,
        "nodes": 1,
        "max_restarts": 3,
        "stop_grace_s": 120,
        "image": "registry/x:1",
        "launcher": "local",
        "settings": {},
        "env": {"OMP_NUM_THREADS": "1"},
    },
    "trainer": {
        "dataset_path": "data",
        "batch_size": 1024,
        "dense_arch_layer_sizes": [64, 16],
        "learning_rate": 0.1,
    },
}
RUN_FILES: Mapping[str, list[Any]] = {
    "events.jsonl": [
        {"time": 1.7e9, "event": "submitted", "launch": 1},
        {"time": 1.7e9, "event": "started", "launch": 1, "pid": 1, "command": ["x"], "id": "ray://h:1/j"},
        {"time": 1.7e9, "event": "rank_ended", "launch": 1, "attempt": 0, "rank": 0, "exit_code": -9},
        {"time": 1.7e9, "event": "restarting", "launch": 1, "attempt": 1, "cause": "x"},
        {
            "time": 1.7e9,
            "event": "failed",
            "launch": 1,
            "cause": "x",
            "attempt": 1,
            "exit_codes": {"0": 1},
            "checkpoint": 5,
        },
    ],
    "metrics.jsonl": [
        {"kind": "start", "step": 0, "total_steps": 10, "time": 1.7e9, "world_size": 1, "total_samples": 100},
        {
            "kind": "train",
            "step": 5,
            "loss": 0.5,
            "samples_per_s": 100.0,
            "epoch": 0,
            "goodput": 0.9,
            "time": 1.7e9,
        },
        {
            "kind": "eval",
            "step": 10,
            "auc": 0.7,
            "logloss": 0.5,
            "ne": 0.9,
            "goodput_parts": {"lost_s": 1.0},
            "time": 1.7e9,
        },
        {"kind": "checkpoint", "step": 5, "seconds": 1.0, "bytes": 10, "time": 1.7e9},
    ],
    "goodput.jsonl": [
        {"kind": "start", "restarted": False, "boot": "b", "boot_s": 1.0, "time": 1.7e9},
        {"kind": "begin", "elapsed": 1.0, "step": 0},
        {"kind": "mark", "elapsed": 2.0, "step": 1, "parts": {"compute_s": 1.0}},
    ],
}
SUMMARY = {
    "schema_version": 1,
    "status": "finished",
    "steps": 10,
    "samples_seen": 100,
    "auc": 0.7,
    "logloss": 0.5,
    "ne": 0.9,
    "wall_s": 1.0,
    "goodput": 0.9,
    "goodput_parts": {"compute_s": 0.9},
    "restarts": 0,
    "versions": {"torch": "2"},
}
COSTS = {
    "cluster": "good",
    "provider": "local",
    "owner": "me",
    "estimate_usd": 1.0,
    "began": 1.7e9,
    "read": 1.7e9,
    "created": 1.7e9,
    "ledger": {
        "schema": 1,
        "since": 1.7e9,
        "at": 1.7e9,
        "seen": {"u": ["p", "odd"]},
        "rows": [
            {
                "day": "2030-01-01",
                "pool": "p",
                "instance_type": "x",
                "capacity": "spot",
                "run": "odd",
                "node_s": 3.0,
                "usd": 1.0,
            }
        ],
    },
}
DATASET: dict[str, Any] = {
    "format": "cloudrec-dataset",
    "schema_version": 2,
    "rows": 1,
    "digest": "0" * 64,
    "created": "x",
    "num_embeddings_per_feature": {"C1": 3},
    "splits": {
        "train": {
            "rows": 1,
            "shards": [
                {"rows": 1, "files": {"labels": {"path": "train/a.npy", "bytes": 1, "crc32": "0" * 8}}}
            ],
        }
    },
}
# By name: the file and a valid document.
_HOME_RECORDS: Mapping[str, tuple[str, Any]] = {
    "spec.json": ("home/runs/odd/spec.json", DOCUMENTS["run"]),
    "summary.json": ("home/runs/odd/summary.json", SUMMARY),
    "costs": ("home/costs/good-1.json", COSTS),
    "cluster": (
        "home/clusters/odd/machine.json",
        {"properties": {"gpus": [], "cores": 1}, "tags": {"cloudrec-cluster": "odd"}},
    ),
    "lock": ("home/runs/odd/lock", {"pid": 1, "command": "x"}),
    "row": ("row", DOCUMENTS["request"]),
    "images": ("home/images.json", DOCUMENTS["images"]),
}
_OPTIONS = {
    "up": (
        "--cluster",
        "--region",
        "--zones",
        "--instance-types",
        "--nodes",
        "--capacity",
        "--storage-of",
        "--ttl",
        "--budget",
        "--autostop",
        "--access",
        "--max-hourly",
        "--set",
        "-o",
    ),
    "status": ("--interval", "-o"),
    "logs": ("--rank", "--tail"),
    "down": ("--cluster", "-o"),
    "leaks": ("--region", "-o"),
    "cost": ("--by", "-o"),
    "catalog": ("--region", "--instance-types", "--gpu", "-o"),
    "report": ("-o",),
    "fetch": ("-o",),
    "access": ("--cluster", "--provider", "-o"),
    "doctor": ("--set", "--launcher", "-o"),
    "data": ("-o",),
    "init": ("--file",),
    "completion": ("-o",),
    "addons": ("--cluster",),
    "train": (
        *("--cluster", "--provider", "--name", "--dataset", "--data-tier", "--workdir", "--requirements"),
        *("--env", "--env-file", "--secret", "--launcher", "--nodes", "--min-nodes", "--image"),
        *("--ray-address", "--slurm-host", "--partition", "--account", "--time-limit", "--deadline"),
        *("--work", "--max-price", "--regions", "--nproc-per-node", "--max-restarts", "--resume"),
        *("--set", "-o"),
    ),
    "plan": (
        *("--dataset", "--gpus", "--provider", "--regions", "--capacity", "--max-nodes", "--samples"),
        *("--ids", "--hours", "--budget", "--sort", "--explain", "--spot", "--work", "--deadline"),
        *(
            "--restart",
            "--notice",
            "--commit",
            "--blocking",
            "--spot-price",
            "--starts",
            "--nodes",
            "--set",
            "-o",
        ),
    ),
    "queue": ("-o",),
    "stop": ("--grace", "-o"),
    "exec": ("--rank",),
    "port-forward": ("--rank",),
    "push": ("--cluster", "--name", "-o"),
    "prepare": (
        *("--features", "--like", "--encoding", "--min-frequency", "--hash-buckets", "--max-vocabulary"),
        *("--test-fraction", "--max-bad-rows", "--labels", "--seed", "--on", "--forget-after", "-o"),
    ),
    "image": ("--cluster", "--repository", "--tag", "-o"),
    "nothing": (),
}
_ALWAYS = {
    "up": ("local", "--dry-run"),
    "down": ("local", "--dry-run"),
    "leaks": ("local",),
    "catalog": ("local",),
    "train": ("--dry-run",),
    "plan": ("--provider", "aws", "--gpus", "H100", "--max-nodes", "1"),
    "stop": ("--dry-run",),
    "image": ("--dry-run",),
}
_SUB = {"data": ("check",), "addons": ("list",), "image": ("push",)}
_WORDS = {"push": ("data", "push", "--dry-run"), "prepare": ("data", "prepare")}  # that replace the name
# Arguments that would make a folder of any name where the user asks for it, so that they are no fault.
_PLAIN = {"init"}
_SETTINGS = sorted(f"{section}.{key}" for section in ("cluster", "train", "trainer") for key in SPEC[section])
_VARIABLES = sorted(
    [f"CLOUDREC_{name.replace('.', '_').upper()}" for name in _SETTINGS]
    + [
        "CLOUDREC_OUTPUT",
        "CLOUDREC_FILE",
        "CLOUDREC_CLUSTER",
        "CLOUDREC_PROVIDER",
        "CLOUDREC_YES",
        "CLOUDREC_PUBLIC_ADDRESS",
    ]
    + ["CLOUDREC_SANDBOX_SPEED", "KUBECONFIG", "CLOUDREC_API_ADDRESS", "NO_COLOR", "COLUMNS", "TERM", "LANG"]
)
_LOOKS = [
    *(
        ("status",),
        ("status", "-o", "json"),
        ("status", "odd"),
        ("status", "--events"),
        ("logs", "odd"),
        ("logs",),
    ),
    *(
        ("report", "odd", "--force"),
        ("fetch", "odd"),
        ("cost",),
        ("cost", "--by", "day"),
        ("down", "local", "--dry-run"),
    ),
    *(("down", "--cluster", "good", "--dry-run"), ("leaks", "local"), ("stop", "odd", "--dry-run")),
]


@st.composite
def spec(draw: st.DrawFn) -> BadInput:
    """A spec file."""
    command = draw(
        st.sampled_from(
            [("up", "local", "--dry-run"), ("doctor", "local"), ("catalog", "aws"), ("up", "--dry-run")]
        )
    )
    return BadInput(area="spec", command=command, files={"here/cloudrec.yaml": draw(yaml_files(SPEC))})


@st.composite
def flags(draw: st.DrawFn) -> BadInput:
    """Options and arguments of a command."""
    name = draw(st.sampled_from(sorted(_OPTIONS)))
    command = [*_WORDS.get(name, (name, *_SUB.get(name, ()))), *_ALWAYS.get(name, ())]
    for _ in range(draw(st.integers(0, 2))):
        if not _OPTIONS[name]:
            break
        option, value = draw(st.sampled_from(_OPTIONS[name])), draw(words)
        if option == "--set":
            value = f"{draw(st.sampled_from(_SETTINGS))}={value}"
        command += (
            [f"{option}={value}"] if draw(st.booleans()) and option.startswith("--") else [option, value]
        )
    if name not in _PLAIN and draw(st.booleans()):
        command.append(draw(words))
    return BadInput(area="flags", command=tuple(_harmless(command)))


def _harmless(command: list[str]) -> list[str]:
    """Leave out what waits for a person or another machine, or begins a rehearsal of minutes."""
    return [
        word for word in command if word not in {"--watch", "--follow", "--sandbox"} and "ssh://" not in word
    ]


@st.composite
def environment(draw: st.DrawFn) -> BadInput:
    """Variables."""
    command = draw(
        st.sampled_from(
            [("up", "local", "--dry-run"), ("status",), ("catalog", "gcp"), ("down", "local", "--dry-run")]
        )
    )
    given = draw(st.dictionaries(st.sampled_from(_VARIABLES), words, min_size=1, max_size=3))
    return BadInput(area="environment", command=command, environment=given)


@st.composite
def home(draw: st.DrawFn) -> BadInput:
    """Files of the home: a run's, the journal, costs, a cluster's."""
    files: dict[str, bytes] = {}
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from([*RUN_FILES, *_HOME_RECORDS, "log", "journal"]))
        if name in RUN_FILES:
            files[f"home/runs/odd/{name}"] = draw(json_lines(RUN_FILES[name]))
        elif name == "log":
            files["home/runs/odd/logs/rank-0.log"] = draw(damaged(b"=== launch 1\nerror: it failed\n" * 3))
        elif name in _HOME_RECORDS:
            path, document = _HOME_RECORDS[name]
            files[path] = draw(json_files(document))
        else:
            files["home/journal.sqlite"] = draw(damaged(b"SQLite format 3\x00" + bytes(200)))
    return BadInput(area="home", command=draw(st.sampled_from(_LOOKS)), files=files)


@st.composite
def data(draw: st.DrawFn) -> BadInput:
    """A dataset, as others may have prepared it."""
    files = {"here/data/dataset.json": sealed(draw(json_files(DATASET)))}
    if draw(st.booleans()):
        files["here/data/train/a.npy"] = draw(
            damaged(b"\x93NUMPY\x01\x00v\x00{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }\n\x01")
        )
    return BadInput(
        area="data",
        command=draw(st.sampled_from([("data", "check", "data"), ("data", "check", "data", "--deep")])),
        files=files,
    )


@st.composite
def records(draw: st.DrawFn) -> BadInput:
    """A record of a cluster, a bucket or a cloud, given to the reader of its kind."""
    name = draw(st.sampled_from(sorted({*DOCUMENTS, *TEXT_READERS, *YAML_READERS})))
    if name in TEXT_READERS:
        given = draw(texts).encode("utf-8", "surrogatepass")
    elif name in YAML_READERS:
        given = draw(yaml_files(YAML_READERS[name]))
    else:
        given = draw(json_files(DOCUMENTS[name]))
    return BadInput(area="records", command=(name,), files={"record": given})


# How many of twenty-two inputs are of each area.
AREAS: Mapping[str, tuple[Callable[[], st.SearchStrategy[BadInput]], int]] = {
    "spec": (spec, 4),
    "flags": (flags, 4),
    "environment": (environment, 2),
    "home": (home, 4),
    "data": (data, 2),
    "records": (records, 4),
    "notify": (notify, 1),
    "env-files": (env_files, 1),
}


def described(given: BadInput) -> str:
    """Return an input as a line of JSON, for a report."""
    return json.dumps(
        {
            "area": given.area,
            "command": given.command,
            "environment": given.environment,
            "files": {
                name: data[:300].decode("utf-8", "backslashreplace") for name, data in given.files.items()
            },
        }
    )

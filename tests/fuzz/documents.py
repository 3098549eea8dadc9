"""A valid document of each foreign record, which the strategies change."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from cloudrec.app.planning import calibration
from cloudrec.app.run import measured_links
from cloudrec.keeper.meter import Tariff
from cloudrec.keeper.note import Note
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.spec.models import ClusterSpec

_KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "x"}}],
    "clusters": [
        {"name": "a", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": "eA=="}}
    ],
    "users": [{"name": "a", "user": {"token": "t", "exec": {"command": "x", "args": ["y"], "env": []}}}],
}
_CLUSTER = ClusterSpec(name="good", provider="local", owner="me").model_dump(mode="json")
_MODEL_SHAPE: dict[str, Any] = {
    "num_dense": 1,
    "num_embeddings": {"C1": 4},
    "embedding_dim": 4,
    "dense_arch_layer_sizes": [4, 4],
    "over_arch_layer_sizes": [4, 1],
    "interaction": "dot",
    "hotness": [1],
    "feature_tables": {},
    "dims": {},
    "dense_names": ["I1"],
    "task_weights": [],
}
_MODEL_CONFIG: dict[str, Any] = {
    "embedding_dim": 4,
    "dense_arch_layer_sizes": [4, 4],
    "over_arch_layer_sizes": [4, 1],
    "seed": 0,
    "table_constraints": {},
    "checkpoint_dir": None,
}
# The shapes of an export's arrays, by name, for the model of the documents.
ARRAYS: Mapping[str, tuple[int, ...]] = {
    "tables/C1.npy": (4, 4),
    "dense/bottom.layers.0.weight.npy": (4, 1),
    "dense/bottom.layers.0.bias.npy": (4,),
    "dense/bottom.layers.1.weight.npy": (4, 4),
    "dense/bottom.layers.1.bias.npy": (4,),
    "dense/top.layers.0.weight.npy": (4, 5),
    "dense/top.layers.0.bias.npy": (4,),
    "dense/top.layers.1.weight.npy": (1, 4),
    "dense/top.layers.1.bias.npy": (1,),
}


def _npy(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(shape, np.float32))
    return file.getvalue()


def _piece(name: str, object_: str) -> dict[str, Any]:
    """Return the place of an array's file in an object that has all of them."""
    names = list(ARRAYS)
    before = sum(len(_npy(ARRAYS[each])) for each in names[: names.index(name)])
    file = _npy(ARRAYS[name])
    digest = hashlib.sha256(file).hexdigest()
    return {"object": object_, "position": before, "bytes": len(file), "sha256": digest}


PUBLISHED = "data/00000002.0a0b0c0d/whole.bin"  # the object of the publication
FILES = b"".join(map(_npy, ARRAYS.values()))  # its bytes
_PUBLICATION = {
    "format": "cloudrec-publication",
    "schema_version": 1,
    "version": 2,
    "token": "0a0b0c0d",
    "created": "2030-01-01T00:00:00+00:00",
    "parent": None,
    "full": True,
    "delta": False,
    "precision": "fp32",
    "step": 10,
    "source": {"step": 10, "base": None, "layers": [[["step-5/rank-0.json", 123, 5]]]},
    "found_by": "",
    "export": {"step": 10, "quantization": "none", "config": _MODEL_CONFIG, "model": _MODEL_SHAPE},
    "arrays": {
        "tables/C1": {
            "dtype": "<f4",
            "shape": [4, 4],
            "whole": _piece("tables/C1.npy", PUBLISHED),
            "change": None,
        }
    },
    "files": {name: _piece(name, PUBLISHED) for name in ARRAYS if name.startswith("dense/")},
    "listed": list(ARRAYS),
}
_COMMIT = {
    "format": "cloudrec-checkpoint",
    "schema_version": 2,
    "crc32": 0,
    "step": 5,
    "owner": 1,
    "number": 1,
    "world_size": 1,
    "base": "x",
    "layers": [[["step-5/rank-0.json", 123, 5]]],
    "fingerprint": {"dataset": "0", "num_embeddings": {"C1": 4}},
    "extra": {
        "progress": {
            "step": 5,
            "epoch": 0,
            "position": 5,
            "samples": 5,
            "attempt": 0,
            "target": {"auc": 0.8},
        },
        "samples": {"sums": ["73eaa141b67e7bad", "b7975b73f4c55311"], "count": 5},
        "config": _MODEL_CONFIG,
        "model": _MODEL_SHAPE,
    },
}
_TURN: dict[str, Any] = {
    "number": 1, "launch": 1, "clusters": ["a", "b"], "cluster": "a", "by": "", "at": 1.0, "reason": "",
    "step": None, "steps": 9, "ended": "",
}  # fmt: skip
_NOTICE = {
    "key": "failed:2", "event": "failed", "at": 1.0, "text": "x", "cluster": "a", "run": "b", "details": {},
}  # fmt: skip
_MANAGED: dict[str, Any] = {
    "at": 1.0,
    "runs": {"r": {"worked_s": 1.0, "step": 3, "steps": 9, "saved": None, "reason": "x"}},
    "queue": ["s"],
    "owner": {"p": "r"},
    "asked": {"p": 2},
    "asked_at": {"p": 1.0},
    "complete": {"p": 1.0},
    "broken": {},
    "history": {"p": {"is_up": True, "at": 1.0, "ends": 1, "up_s": 1.0, "returns": 0, "down_s": 0.0}},
    "turns": {"r": _TURN},
    "silent": {"r": {"number": 1, "files": "0" * 64, "since": 1.0}},
    "free_since": 0.0,
    "events": [{"at": 1.0, "run": "r", "text": "x"}],
}
_SCHEMA: dict[str, Any] = {
    "label": "clicked",
    "weight": "w",
    "dense": [
        {"name": "price", "transform": "log1p", "missing": 4, "clip": [0, 9]},
        {"name": "age", "lookup": {"x": 1.5}},
        "ctr",
    ],
    "sparse": [
        "city",
        {"name": "user", "table": "people", "column": "u"},
        {"name": "tags", "kind": "multi_hot", "pooling": "mean", "separator": "|"},
        {"name": "hour", "boundaries": [6, 12, 18]},
        {"name": "zip", "encoding": "hash", "buckets": 500},
        {"name": "seen", "kind": "sequence", "max_length": 5},
    ],
}
_ENTRY = {"path": "a.npy", "bytes": 1, "crc32": "0" * 8}
_STAGED: dict[str, Any] = {
    "format": "cloudrec-dataset",
    "schema_version": 2,
    "splits": {"train": {"rows": 1, "shards": [{"rows": 1, "files": {"labels": _ENTRY}}]}},
    "num_embeddings_per_feature": {"C1": 3},
    "digest": "0" * 64,
    "encoding": {"digest": "0" * 64, "mapping": {"tables": []}, "files": {"C1": _ENTRY}},
}
MODEL: dict[str, Any] = {
    "tables": 1, "dim": 8, "rows": 100, "hotness": 1, "batch": 8, "bottom": [8], "top": [8],
    "interaction": "dot", "cross_rank": 0, "seconds": [0.1, 0.2], "rss_bytes": 1 << 20,
}  # fmt: skip
_CALIBRATION: dict[str, Any] = {
    "version": calibration.VERSION,
    "as_of": "2030-01-01",
    "memory_bytes": 16 << 30,
    "rates": [
        {"ranks": 1, "cache_bytes": 32 << 20, "misfit": 0.1, "constants": {"fixed": 0.1, "products": 0.1}}
    ],
    "measured": [
        {"ranks": 1, "cores": 2, "cache_bytes": 32 << 20, "baseline_bytes": 240 << 20, "models": [MODEL]}
    ],
}

# Two values of one feature, and the encoding of data that has them.
VOCABULARY = b'"a"\n"b"\n'
_ENCODING: dict[str, Any] = {
    "digest": "0" * 64,
    "mapping": {
        "kind": "features",
        "version": 1,
        "missing_id": 0,
        "features": [
            {"name": "I1", "missing": 0.0, "transform": "none"},
            {"name": "C1", "kind": "single", "encoding": "vocabulary", "table": "C1"},
        ],
        "statistics": {},
        "unknown_id": 1,
        "first_id": 2,
        "tables": [{"feature": "C1", "rows": 4, "sha256": hashlib.sha256(VOCABULARY).hexdigest()}],
    },
    "files": {
        "C1": {
            "path": "vocabulary/C1.jsonl",
            "bytes": len(VOCABULARY),
            "crc32": f"{zlib.crc32(VOCABULARY):08x}",
        }
    },
    "features": {
        "label": "label",
        "dense": [{"name": "I1", "column": "I1", "missing": 0.0, "transform": "none"}],
        "sparse": [{"name": "C1", "column": "C1", "kind": "single", "encoding": "vocabulary", "table": "C1"}],
    },
}

# A valid document of each JSON record, which the strategies change.
DOCUMENTS: Mapping[str, Any] = {
    "run": json.loads(RunSpec(name="odd").to_json()),
    "request": _CLUSTER,
    "end-event": {
        "exit_code": 1,
        "kind": "failed",
        "cause": "x",
        "step": 1,
        "checkpoint": None,
        "notice": "",
        "machine_leaves": False,
    },
    "settings": {"dataset_path": "x", "checkpoint_dir": "y", "batch_size": 1},
    "guard-note": json.loads(
        Note(
            cluster=ClusterSpec(name="good", provider="local", owner="me", budget_usd=9.0),
            hourly_usd=2.0,
            began="2030-01-01T00:00:00+00:00",
            tariffs=(Tariff(pool="p", instance_type="x", capacity="spot", hourly_usd=2.0, gpus=8),),
        ).to_json()
    ),
    "guard-record": {
        "end": "2030-01-01T00:00:00+00:00",
        "at": "2030-01-01T00:00:00+00:00",
        "halted": True,
        "pools": ["a"],
        "left": [],
    },
    "moved-end": {"ordered": "2030-01-01T00:00:00+00:00", "expires": "2030-01-01T00:00:00+00:00"},
    "idle": {"active": 1.0, "stopped": 2.0},
    "spot": {"at": 1.0, "hourly_usd": {"a": 1.0}},
    "cost-ledger": {
        "schema": 1,
        "since": 1.0,
        "at": 2.0,
        "seen": {"u": ["p", "r"]},
        "rows": [
            {
                "day": "2030-01-01",
                "pool": "p",
                "instance_type": "x",
                "capacity": "spot",
                "run": "r",
                "node_s": 3.0,
                "usd": 1.0,
            }
        ],
    },
    "managed-record": _MANAGED,
    "turn": _TURN,
    "host-claim": {"launch": 1, "number": 2, "pod": "x", "endpoint": "y:1", "renewed": 3, "released": False},
    "launch-request": {
        **dict.fromkeys(("nodes", "min_nodes", "max_restarts", "gpus", "port"), 1),
        "agent": ["x"],
        "program": ["y"],
        "cpus": 1,
        "wait_s": 0.5,
        "environment": {"A": "b"},
    },
    "ray-head": {"url": "http://127.0.0.1:1", "pid": 1, "born": "x", "sockets": "/nowhere"},
    "images": {
        "schema_version": 1,
        "built": [dict.fromkeys(("name", "fabric", "device", "version", "builder", "built"), "x")],
        "pushed": [
            dict.fromkeys(
                ("repository", "digest", "tag", "fabric", "device", "version", "cluster", "pushed"), "x"
            )
        ],
    },
    "smoke-report": {
        "world_size": 2,
        "nodes": 1,
        "ranks": [{"rank": 0, "host": "x", "node": "y", "device": "NVIDIA H100"}],
        "all_reduce": 2,
        "bandwidths": [{"operation": "all-reduce", "mib": 1, "gb_s": 1.5, "expected_gb_s": None}],
    },
    "outbox": {
        "known": ["failed:2"],
        "waiting": [{"notice": _NOTICE, "channel": "slack", "tries": 3, "due": 1.0, "why": ""}],
        "done": [],
        "problems": [],
        "facts": {"state": "FAILED"},
    },
    "ray-report": {"launch": 1, "code": 0, "agents": [{"node": "a", "code": 1}]},
    "api-error": {
        "kind": "Status",
        "code": 409,
        "message": "x",
        "reason": "Conflict",
        "details": {
            "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "x"', "field": ".a"}],
            "retryAfterSeconds": 1,
        },
    },
    "kubernetes-object": {
        "name": "x",
        "labels": {"app.kubernetes.io/managed-by": "cloudrec", "cloudrec/cluster": "a"},
        "annotations": {"cloudrec/tags": "{}"},
    },
    "azure-workflow": {
        "triggers": {"end": {"recurrence": {"startTime": "2030-01-01T00:00:00Z"}}},
        "actions": {"a": {"actions": {}}},
    },
    "gcp-workflow": {
        "main": {
            "steps": [
                {
                    "init": {
                        "assign": [{"deadline": "x"}, {"cluster": {"body": {"nodePools": [{"name": "a"}]}}}]
                    }
                }
            ]
        }
    },
    "dataset-product": {
        "format": "cloudrec-dataset",
        "schema_version": 2,
        "splits": {"train": {"rows": 1, "shards": []}},
        "num_embeddings_per_feature": {"C1": 1},
        "digest": "0",
    },
    "dataset-trainer": {
        "format": "cloudrec-dataset",
        "schema_version": 1,
        "splits": {
            split: {
                "rows": 1,
                "positives": 1,
                "shards": [
                    {
                        "name": "a",
                        "rows": 1,
                        "files": {
                            kind: {"path": f"{kind}.npy", "bytes": 1, "crc32": "0a"}
                            for kind in ("labels", "dense", "sparse")
                        },
                    }
                ],
            }
            for split in ("train", "test")
        },
        "num_embeddings_per_feature": {"C1": 1},
        "digest": "0",
        "dense_features": ["I1"],
        "sparse_features": ["C1"],
    },
    "commit": _COMMIT,
    "manifest": {
        "format": "cloudrec-checkpoint-part",
        "schema_version": 2,
        "crc32": 0,
        "file": "x",
        "bytes": 2352,
        "parts": [
            ["dense/a", "float32", [4, 1], [0, 0], [4, 1], 0, 16, 1513977992, "raw", None],
            ["tables/C1/weight", "float32", [9, 4], [0, 0], [9, 4], 64, 9, 1, "raw", ["ids", 9, 208, 2, 1]],
        ],
    },
    "export": {
        "format": "cloudrec-model",
        "schema_version": 1,
        "step": 1,
        "quantization": "none",
        "model": _MODEL_SHAPE,
        "config": _MODEL_CONFIG,
        "files": {name: {"bytes": 1, "sha256": "0"} for name in ARRAYS},
    },
    "publication": _PUBLICATION,
    "vocabulary": {"format": "cloudrec-model", "encoding": _ENCODING},
    "dcp-side-file": {
        "format": "cloudrec-dcp",
        "schema_version": 1,
        "step": 5,
        "extra": {"encoding": _ENCODING},
        "fingerprint": {"x": 1},
    },
    "goodput": {"kind": "start", "restarted": False, "boot": "b", "boot_s": 1.0, "time": 1.0},
    "spot-notice": {"action": "terminate", "time": "2030-01-01T00:00:00Z"},
    "staged-dataset": _STAGED,
    "calibration": _CALIBRATION,
    "links": {
        "version": measured_links.VERSION,
        "all_to_all_gb_s": 20.0,
        "all_reduce_gb_s": 150.0,
        "nodes": 2,
        "cluster": "good",
        "as_of": "2030-01-01",
    },
    "last-plan": {
        "offers": [
            {"number": 1, "provider": "aws", "region": "x", "type": "y", "nodes": 2, "capacity": "spot"}
        ]
    },
    "json": {"a": [1, {"b": None}], "c": 1.5},
}
YAML_READERS: Mapping[str, Any] = {
    "kubeconfig": _KUBECONFIG,
    "contexts": _KUBECONFIG,
    "feature-schema": _SCHEMA,
    "trainer-config": {
        "batch_size": 8,
        "dense_arch_layer_sizes": [8, 4],
        "learning_rate": 0.1,
        "table_dims": {"C1": 4},
    },
}

"""The readers of foreign records, each with a valid document, and the errors that it may raise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cloudrec.agent.checks.smoke_report import SmokeReport
from cloudrec.agent.engines.ray import read_launch
from cloudrec.agent.lease.host import HostClaim
from cloudrec.agent.upload.staging import list_files
from cloudrec.app.context import AppContext
from cloudrec.app.managed.view import view_of
from cloudrec.app.planning import calibration
from cloudrec.app.planning.kept_plan import kept_offer
from cloudrec.app.run import measured_links
from cloudrec.cli.cluster_tables import keeper_lines
from cloudrec.data.format import manifest as product_manifest
from cloudrec.data.schema_file import load_schema
from cloudrec.errors import CloudrecError
from cloudrec.home import Home
from cloudrec.image import records as images
from cloudrec.keeper.ends import MovedEnd
from cloudrec.keeper.guard import GuardRecord
from cloudrec.keeper.idle import IdleRecord
from cloudrec.keeper.managed.record import ManagedRecord
from cloudrec.keeper.meter import CostLedger, LiveNode, Tariff, advance
from cloudrec.keeper.note import Note
from cloudrec.keeper.spot import SpotRecord
from cloudrec.kubernetes.client.credentials import Kubeconfig
from cloudrec.kubernetes.client.errors import ErrorResponse, error_of
from cloudrec.launchers.base.results_store import open_place
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.kubernetes.turns import Turn
from cloudrec.launchers.ray.report import LaunchReport
from cloudrec.notify.outbox import Outbox
from cloudrec.planning.fit.cpu import cpu_memory, cpu_step
from cloudrec.planning.fit.gpus import gpu_rates
from cloudrec.planning.fit.step import Links, step_time
from cloudrec.process import ray_head
from cloudrec.providers.azure.nodes import end_workflow as azure_workflow
from cloudrec.providers.gcp.api import labels as gcp_labels
from cloudrec.providers.gcp.nodes.end_workflow import Program
from cloudrec.providers.kubernetes.api import contexts
from cloudrec.providers.kubernetes.api import labels as kubernetes_labels
from cloudrec.safe_path import UnsafeNameError, safe_join
from cloudrec.spec.load import load
from cloudrec.spec.models import ClusterSpec
from cloudrec.spec.requests import read_request
from cloudrec_contract.end_event import EndEvent
from cloudrec_contract.safe_json import RecordError, record_of, safe_json
from cloudrec_contract.settings import SettingsError, TrainerSettings
from trainer.base.arguments import parse_arguments, read_config_file
from trainer.base.errors import TrainerError
from trainer.checkpoint.format.commit import Commit, _seal, parse_commit, parse_manifest
from trainer.data.formats import manifest as trainer_manifest
from trainer.preempt.clouds import aws as aws_notice
from trainer.preempt.metadata import MetadataError, MetadataResponse
from trainer.publishing import identity
from trainer.report.ledger import read_ledger
from trainer.serving.publication.format import manifest_name
from trainer.serving.publication.reader import PublicationReader

EXPECTED = (CloudrecError, TrainerError, SettingsError, MetadataError)
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
_COMMIT = {
    "format": "cloudrec-checkpoint",
    "schema_version": 1,
    "crc32": 0,
    "step": 5,
    "owner": 1,
    "extra": {"x": 1.0},
    "layers": [[["step-5/rank-0.json", 123, 5]]],
}

_PIECE = {"object": "data/00000002.0a0b0c0d/changes.bin", "position": 0, "bytes": 4, "sha256": "0" * 64}
_PUBLICATION = {
    "format": "cloudrec-publication",
    "schema_version": 1,
    "version": 2,
    "token": "0a0b0c0d",
    "created": "2030-01-01T00:00:00+00:00",
    "parent": {"version": 1, "sha256": "0" * 64},
    "full": False,
    "delta": True,
    "precision": "fp32",
    "step": 10,
    "source": {"step": 10, "base": None, "layers": [[["step-5/rank-0.json", 123, 5]]]},
    "found_by": "layers",
    "export": {"step": 10},
    "arrays": {
        "tables/C1": {
            "dtype": "<f4",
            "shape": [9, 1],
            "whole": None,
            "change": {"count": 1, "numbers": _PIECE, "values": _PIECE},
        }
    },
    "files": {"dense/x.npy": _PIECE},
    "listed": ["tables/C1.npy", "dense/x.npy"],
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
_COMMITTED = Commit(step=10, owner=1, number=1, world_size=1, base="x", layers=(), fingerprint={}, extra={})

_MODEL: dict[str, Any] = {
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
        {"ranks": 1, "cores": 2, "cache_bytes": 32 << 20, "baseline_bytes": 240 << 20, "models": [_MODEL]}
    ],
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
        "splits": {"train": {"rows": 1, "shards": [{"rows": 1, "files": {}}]}},
        "num_embeddings_per_feature": {"C1": 1},
        "digest": "0",
        "dense_features": ["I1"],
    },
    "commit": _COMMIT,
    "manifest": {
        "format": "cloudrec-checkpoint-part",
        "schema_version": 1,
        "crc32": 0,
        "file": "x",
        "bytes": 1,
        "parts": [["t", "f4", [1], [0], [1], 0, 4, 1, None]],
    },
    "export": {
        "format": "cloudrec-model",
        "schema_version": 1,
        "files": {"../x": {"bytes": 1, "sha256": "0"}},
        "config": {},
        "model": {},
        "step": 1,
        "quantization": None,
    },
    "publication": _PUBLICATION,
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
# Readers of a text or a name, which has no structure.
TEXT_READERS = frozenset({"name", "gcp-description", "trainer-flags", "metadata-token"})
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


def _flags(words: list[str]) -> None:
    """Parse flags; those that ask for help end the program without an error."""
    try:
        parse_arguments(words)
    except SystemExit as ended:
        if ended.code or not {"-h", "--help"} & {*words}:
            raise


def read(name: str, data: bytes, folder: Path) -> None:
    """Give a record to its reader; raises one of EXPECTED, or nothing."""
    path = folder / "record"
    text = data.decode("utf-8", errors="replace")
    _READERS[name](data, text, path)


def sealed(data: bytes) -> bytes:
    """Return a dataset.json with the digest that fits it, so that more than the digest is checked."""
    try:
        document = safe_json(data, numbers="any")
        digest = product_manifest.digest(document["splits"], document["num_embeddings_per_feature"])
        return json.dumps({**document, "digest": digest}).encode("utf-8", "surrogatepass")
    except (ValueError, LookupError, TypeError):
        return data


def _resealed(data: bytes) -> bytes:
    """Return a commit file with the checksum that fits it."""
    try:
        document = safe_json(data, numbers="any")
        return _seal({key: value for key, value in document.items() if key != "crc32"})
    except (ValueError, LookupError, TypeError, AttributeError):
        return data


def _kubeconfig(_data: bytes, _text: str, path: Path) -> None:
    _ = Kubeconfig(path, "").server


def _contexts(_data: bytes, _text: str, path: Path) -> None:
    found = contexts.read([path])
    contexts.choose(found, contexts.current([path]) or None, [path])


def _name(_data: bytes, text: str, path: Path) -> None:
    try:
        inside = safe_join(path.parent, text)
    except UnsafeNameError:
        return
    if not inside.resolve().is_relative_to(path.parent.resolve()):
        raise AssertionError(f"{inside} is outside {path.parent}")


def _json(data: bytes, _text: str, _path: Path) -> None:
    try:
        value = safe_json(data)
    except ValueError:
        return
    json.dumps(value, allow_nan=False).encode()


def _request(data: bytes, _text: str, _path: Path) -> None:
    try:
        values = safe_json(data, numbers="any")
    except ValueError:
        return
    if isinstance(values, dict):
        read_request(values, name="x", provider="local", version=1)


def _product_dataset(data: bytes, _text: str, path: Path) -> None:
    product_manifest.parse(sealed(data), path)


def _trainer_dataset(data: bytes, _text: str, path: Path) -> None:
    (path.parent / trainer_manifest.FILE_NAME).write_bytes(sealed(data))
    trainer_manifest.read(path.parent)


def _staged(data: bytes, _text: str, path: Path) -> None:
    folder = path.parent / "staged"
    folder.mkdir(exist_ok=True)
    (folder / "dataset.json").write_bytes(_sealed_encoding(sealed(data)))
    list_files(open_place(str(folder)))


def _sealed_encoding(data: bytes) -> bytes:
    """Return a dataset.json with the digest that fits its encoding."""
    try:
        document = safe_json(data, numbers="any")
        mapping = json.dumps(document["encoding"]["mapping"], sort_keys=True, separators=(",", ":"))
        document["encoding"]["digest"] = hashlib.sha256(mapping.encode()).hexdigest()
        return json.dumps(document).encode("utf-8", "surrogatepass")
    except (ValueError, LookupError, TypeError):
        return data


def _export(data: bytes, _text: str, path: Path) -> None:
    from trainer.serving.document import FILE_NAME  # noqa: PLC0415 - as below
    from trainer.serving.exported import read_export  # noqa: PLC0415 - it loads torch, for seconds

    (path.parent / FILE_NAME).write_bytes(data)
    read_export(path.parent)


def _publication(data: bytes, _text: str, path: Path) -> None:
    folder = path.parent / "publication"
    (folder / "versions").mkdir(parents=True, exist_ok=True)
    seal = json.dumps({"sha256": hashlib.sha256(data.partition(b"\n")[0]).hexdigest()}).encode()
    (folder / manifest_name(2)).write_bytes(data.partition(b"\n")[0] + b"\n" + seal)
    reader = PublicationReader(str(folder))
    identity.shared_layers(reader.versions.manifest(2).source, _COMMITTED)
    reader.load("2")


def _workflow(data: bytes, _text: str, _path: Path) -> None:
    try:
        document = safe_json(data)
    except ValueError:
        return
    azure_workflow.start(document)
    azure_workflow.deletions(document)


def _labelled(data: bytes, _text: str, _path: Path) -> None:
    try:
        document = safe_json(data)
    except ValueError:
        return
    if isinstance(document, dict):
        annotations = {kubernetes_labels.TAGS: json.dumps(document.get("annotations"))}
        kubernetes_labels.tags_of(
            {"metadata": {**DOCUMENTS["kubernetes-object"], "annotations": annotations}}, "x"
        )


def _cost_ledger(_data: bytes, text: str, _path: Path) -> None:
    tariff = Tariff(pool="p", hourly_usd=1.0)
    node = LiveNode(uid="v", pool="p", created=1.0)
    ledger = advance(CostLedger.of(text), [node], [tariff], 1e6)
    json.dumps([ledger.known_usd, ledger.usd, ledger.unpriced, ledger.to_json()], allow_nan=False)


def _managed(_data: bytes, text: str, _path: Path) -> None:
    record = ManagedRecord.of(text)
    view = view_of("a", record.noting_once("x"))
    _ = keeper_lines(view), [each.done for each in record.runs.values()]
    for seen in record.history.values():
        seen.seen(1e6, is_up=False)


def _images(data: bytes, _text: str, path: Path) -> None:
    home = _app(path.parent, "images.json", data).home
    images.newest(home, "x")
    image = images.BuiltImage(name="y", fabric="x", device="x", version="x", builder="x", built="x")
    images.note_built(home, image)


def _ray_head(data: bytes, _text: str, path: Path) -> None:
    head = ray_head.read_head(_app(path.parent, "ray/head.json", data).home.root / "ray")
    _ = head is not None and head.is_alive


def _launch_request(data: bytes, _text: str, path: Path) -> None:
    path.write_bytes(data)
    read_launch(path).command(rendezvous="x", port=1, address="y")


def _outbox(_data: bytes, text: str, _path: Path) -> None:
    found = Outbox.of(text)
    for each in found.waiting if found is not None else ():
        _ = each.notice.document(), each.due + 1


def _smoke_report(data: bytes, _text: str, path: Path) -> None:
    try:
        summary = safe_json(data)
    except ValueError:
        return
    if isinstance(summary, dict):
        app = _app(path.parent, "x", b"")
        found = SmokeReport.of(summary)
        measured_links.keep_links(app, found, cluster="a", provider="aws", machine="p5.48xlarge")


def _host_claim(data: bytes, _text: str, _path: Path) -> None:
    try:
        document = safe_json(data)
    except ValueError:
        return
    try:
        claim = record_of(HostClaim, document)
    except RecordError:
        return
    _ = claim.name, claim.text()


def _guard_note(_data: bytes, text: str, _path: Path) -> None:
    Note.of(text).end()


def _guard_record(_data: bytes, text: str, _path: Path) -> None:
    record = GuardRecord.of(text)
    note = Note(cluster=ClusterSpec(name="good", provider="local", owner="me"))
    record.has_just_scaled(note, datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC))


def _app(folder: Path, name: str, data: bytes) -> AppContext:
    """Return the context of a home that has the record at a path."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return AppContext(home=Home(root=folder), environment={})


def _calibration(data: bytes, _text: str, path: Path) -> None:
    found = calibration.kept_calibration(_app(path.parent, calibration.NAME, data))
    assert found is not None
    for ranks, rates in found.rates.items():
        step = cpu_step(_WORK, rates)
        memory = cpu_memory(
            _WORK,
            ranks=ranks,
            baseline_bytes=found.baseline_bytes[ranks],
            memory_bytes=found.memory_bytes,
        )
        json.dumps([step.samples_per_s, 1 / step.samples_per_s, memory.need, memory.have], allow_nan=False)


def _links(data: bytes, _text: str, path: Path) -> None:
    app = _app(path.parent, "links/aws-p5.48xlarge-across.json", data)
    found = measured_links.kept_links(app, "aws", "p5.48xlarge", across=True)
    rates = gpu_rates("H100", 80)
    if found is None or rates is None:
        return
    links = Links(gpus_a_node=8, inside_gb_s=450.0, across_gb_s=50.0, across=found)
    step = step_time(_WORK, rates, links, nodes=2)
    json.dumps(None if step is None else step.seconds, allow_nan=False)


def _last_plan(data: bytes, _text: str, path: Path) -> None:
    offer = kept_offer(_app(path.parent, "plan.json", data), 1)
    values = (("provider", offer.provider), ("nodes", offer.nodes), ("instance_types", offer.machine))
    flags: dict[tuple[str, ...], tuple[str, Any]] = {
        ("cluster", name): ("--from-plan", value) for name, value in values
    }
    load(None, environment={}, flags=flags, folder=path.parent)


def _notice(data: bytes, _text: str, _path: Path) -> None:
    aws_notice._interruption(MetadataResponse(status=200, headers={}, body=data))


_WORK = calibration.measured_work(_MODEL)
_READERS: Mapping[str, Callable[[bytes, str, Path], object]] = {
    "run": lambda _data, text, _path: RunSpec.from_json(text),
    "request": _request,
    "end-event": lambda _data, _text, path: EndEvent.read(path),
    "settings": lambda _data, text, _path: TrainerSettings.from_json(text),
    "guard-note": _guard_note,
    "guard-record": _guard_record,
    "moved-end": lambda _data, text, _path: MovedEnd.of(text, "2030-01-01T00:00:00+00:00"),
    "idle": lambda _data, text, _path: IdleRecord.of(text),
    "spot": lambda _data, text, _path: SpotRecord.of(text),
    "cost-ledger": _cost_ledger,
    "managed-record": _managed,
    "turn": lambda data, _text, _path: Turn.of(data),
    "host-claim": _host_claim,
    "launch-request": _launch_request,
    "ray-head": _ray_head,
    "images": _images,
    "smoke-report": _smoke_report,
    "outbox": _outbox,
    "ray-report": lambda data, _text, _path: LaunchReport.decode(data),
    "api-error": lambda data, _text, _path: error_of(
        ErrorResponse(status=409, body=data, retry_after=None, what="x", server="y")
    ),
    "kubernetes-object": _labelled,
    "azure-workflow": _workflow,
    "gcp-workflow": lambda _data, text, _path: Program.of(text),
    "dataset-product": _product_dataset,
    "dataset-trainer": _trainer_dataset,
    "staged-dataset": _staged,
    "feature-schema": lambda _data, _text, path: load_schema(path),
    "commit": lambda data, _text, _path: parse_commit("here", _resealed(data)),
    "manifest": lambda data, _text, _path: parse_manifest("here", _resealed(data)),
    "export": _export,
    "publication": _publication,
    "goodput": lambda _data, _text, path: read_ledger(path),
    "spot-notice": _notice,
    "calibration": _calibration,
    "links": _links,
    "last-plan": _last_plan,
    "json": _json,
    "name": _name,
    "gcp-description": lambda _data, text, _path: gcp_labels.described(text),
    "trainer-flags": lambda _data, text, _path: _flags(text.split(" ")),
    "metadata-token": lambda data, _text, _path: MetadataResponse(status=200, headers={}, body=data).json(),
    "kubeconfig": _kubeconfig,
    "contexts": _contexts,
    "trainer-config": lambda _data, _text, path: read_config_file(path),
}

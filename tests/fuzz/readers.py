"""The readers of foreign records, and the errors that they may raise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

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
from cloudrec.data import known_vocabulary
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
from tests.fuzz.documents import ARRAYS, DOCUMENTS, FILES, MODEL, PUBLISHED, VOCABULARY
from trainer.base.arguments import parse_arguments, read_config_file
from trainer.base.errors import TrainerError
from trainer.checkpoint.format.commit import (
    Commit,
    _seal,
    check_complete,
    differences,
    parse_commit,
    parse_manifest,
)
from trainer.data.formats import manifest as trainer_manifest
from trainer.preempt.clouds import aws as aws_notice
from trainer.preempt.metadata import MetadataError, MetadataResponse
from trainer.publishing import identity
from trainer.report.ledger import read_ledger
from trainer.serving.publication.format import manifest_name
from trainer.serving.publication.reader import PublicationReader

EXPECTED = (CloudrecError, TrainerError, SettingsError, MetadataError)
_COMMITTED = Commit(step=10, owner=1, number=1, world_size=1, base="x", layers=(), fingerprint={}, extra={})
# Readers of a text or a name, which has no structure.
TEXT_READERS = frozenset({"name", "gcp-description", "trainer-flags", "metadata-token"})


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


def _encoded(folder: Path) -> Path:
    """Return a new folder with the vocabulary of the documents."""
    (folder / "vocabulary").mkdir(parents=True, exist_ok=True)
    (folder / "vocabulary" / "C1.jsonl").write_bytes(VOCABULARY)
    return folder


def _with_digest(encoding: Any) -> dict[str, Any]:
    """Return an encoding with the digest that fits its mapping."""
    mapping = json.dumps(encoding["mapping"], sort_keys=True, separators=(",", ":"))
    return {**encoding, "digest": hashlib.sha256(mapping.encode()).hexdigest()}


def _vocabulary(data: bytes, _text: str, path: Path) -> None:
    folder = _encoded(path.parent / "encoded")
    try:
        document = safe_json(data, numbers="any")
        sound = {**document, "encoding": _with_digest(document["encoding"])}
        data = json.dumps(sound).encode("utf-8", "surrogatepass")
    except (ValueError, LookupError, TypeError):
        pass
    (folder / known_vocabulary.EXPORT).write_bytes(data)
    known_vocabulary.load(str(folder))


def _dcp_side_file(data: bytes, _text: str, path: Path) -> None:
    from trainer.commands import interchange  # noqa: PLC0415 - as below

    folder = _encoded(path.parent / "dcp")
    try:
        document = safe_json(data, numbers="any")
        extra = {**document["extra"], "encoding": _with_digest(document["extra"]["encoding"])}
        data = json.dumps({**document, "extra": extra}).encode("utf-8", "surrogatepass")
    except (ValueError, LookupError, TypeError):
        pass
    (folder / interchange.SIDE_FILE).write_bytes(data)
    interchange._vocabulary_in(folder, interchange._described(folder)["extra"])


def _export(data: bytes, _text: str, path: Path) -> None:
    import torch  # noqa: PLC0415 - it loads for seconds

    from trainer.serving.document import FILE_NAME  # noqa: PLC0415 - as below
    from trainer.serving.exported import read_export  # noqa: PLC0415 - it loads torch
    from trainer.serving.scorer import Scorer  # noqa: PLC0415

    digests = {}
    for name, shape in ARRAYS.items():
        file = path.parent / name
        file.parent.mkdir(exist_ok=True)
        np.save(file, np.zeros(shape, np.float32))
        digests[name] = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    try:
        document = safe_json(data, numbers="any")
        files = {name: digests.get(name, entry) for name, entry in document["files"].items()}
        data = json.dumps({**document, "files": files}).encode("utf-8", "surrogatepass")
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    (path.parent / FILE_NAME).write_bytes(data)
    Scorer(read_export(path.parent), torch.device("cpu"))


def _commit(data: bytes, _text: str, _path: Path) -> None:
    from trainer.loop.saving import resumed_from  # noqa: PLC0415 - it loads torch
    from trainer.serving.scorer import model_of  # noqa: PLC0415

    commit = parse_commit("here", _resealed(data))
    _ = commit.bytes, commit.files, [*differences({"dataset": "0", "x": {}}, commit.fingerprint)]
    resumed_from(commit.extra, "here")
    model_of(commit.extra, "here")


def _publication(data: bytes, _text: str, path: Path) -> None:
    import torch  # noqa: PLC0415 - as above

    from trainer.serving.publication.source import PublicationSource  # noqa: PLC0415 - as above
    from trainer.serving.scorer import Scorer  # noqa: PLC0415

    folder = path.parent / "publication"
    (folder / "versions").mkdir(parents=True, exist_ok=True)
    seal = json.dumps({"sha256": hashlib.sha256(data.partition(b"\n")[0]).hexdigest()}).encode()
    (folder / manifest_name(2)).write_bytes(data.partition(b"\n")[0] + b"\n" + seal)
    object_ = folder / PUBLISHED
    object_.parent.mkdir(parents=True, exist_ok=True)
    object_.write_bytes(FILES)
    reader = PublicationReader(str(folder))
    identity.shared_layers(reader.versions.manifest(2).source, _COMMITTED)
    Scorer(PublicationSource(str(folder)).load("00000002", None), torch.device("cpu"))


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


_WORK = calibration.measured_work(MODEL)
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
    "commit": _commit,
    "manifest": lambda data, _text, _path: check_complete(parse_manifest("here", _resealed(data)).parts),
    "export": _export,
    "publication": _publication,
    "vocabulary": _vocabulary,
    "dcp-side-file": _dcp_side_file,
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

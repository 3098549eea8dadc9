"""The reader of publications: numpy alone, one copy at most, whole tables only, and clear refusals."""

from __future__ import annotations

import gc
import hashlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainer.support_publishing import (
    applied,
    command,
    exported,
    publishing,
    steps_of,
    write_zipf,
)
from tests.trainer.support_runs import run_here
from trainer.base.errors import ConfigError, TrainerError
from trainer.commands import publish
from trainer.serving.exported import write_export
from trainer.serving.publication.format import PublicationError
from trainer.serving.publication.reader import PublicationReader
from trainer.serving.publication.source import PublicationSource

VERSIONS = 8
_ALONE = """
import json, sys

class Blocker:
    allowed = {"numpy", "trainer", "cloudrec_contract"} | set(sys.stdlib_module_names)
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.allowed:
            raise ImportError(f"{name} is not numpy")

sys.meta_path.insert(0, Blocker())
from trainer.serving.publication.reader import PublicationReader
reader = PublicationReader(sys.argv[1])
held = reader.load("1")
model = reader.load(reader.newest(), held)
from pathlib import Path
reader.write_export(reader.newest(), Path(sys.argv[2]))
print(json.dumps([model.name, sorted(model.arrays), sorted({"torch", "isal"} & set(sys.modules))]))
"""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    settings = {"checkpoint_interval": 10, "keep_checkpoints": 50, "num_iterations": 10 * VERSIONS}
    assert run_here(write_zipf(folder / "data"), folder / "run", **settings).code == 0
    return folder / "run" / "checkpoints"


@pytest.fixture(scope="module")
def publication(checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base and seven deltas, in 16 bits."""
    out = tmp_path_factory.mktemp("publication")
    for step in steps_of(checkpoints):
        publishing(checkpoints, out, "--step", step, "--precision", "fp16")
    return out


@pytest.fixture
def copy(publication: Path, tmp_path: Path) -> Path:
    shutil.copytree(publication, tmp_path / "copy")
    return tmp_path / "copy"


def test_the_reader_needs_numpy_alone(publication: Path, checkpoints: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-c", _ALONE, str(publication), str(tmp_path / "applied")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = ["tables/C1", "tables/C2", "tables/C3"]
    assert json.loads(done.stdout) == [f"{VERSIONS:08d}", names, []]
    assert applied(publication, tmp_path / "again") == exported(checkpoints, tmp_path / "export", "fp16")


def test_a_source_gives_the_models_of_all_versions_one_after_the_other(
    publication: Path, checkpoints: Path, tmp_path: Path
) -> None:
    source, held = PublicationSource(str(publication)), None
    for number, step in enumerate(steps_of(checkpoints), 1):
        held = source.load(f"{number:08d}", held)
        write_export(held, tmp_path / f"found-{number}")
        found = {
            path.relative_to(tmp_path / f"found-{number}").as_posix(): hashlib.sha256(
                path.read_bytes()
            ).hexdigest()
            for path in (tmp_path / f"found-{number}").rglob("*")
            if path.is_file()
        }
        assert found == exported(checkpoints, tmp_path / f"export-{number}", "fp16", step)
    assert source.newest() == f"{VERSIONS:08d}"


def test_a_version_in_use_is_never_changed(publication: Path) -> None:
    source = PublicationSource(str(publication))
    models = [source.load("1", None)]
    for number in range(2, VERSIONS + 1):
        models.append(source.load(str(number), models[-1]))
    apart = [PublicationSource(str(publication)).load(str(n), None) for n in range(1, VERSIONS + 1)]
    for model, other in zip(models, apart, strict=True):
        for name, table in model.tables.items():
            assert torch.equal(table, other.tables[name])
    assert not torch.equal(models[0].tables["C1"], models[-1].tables["C1"])


def test_a_part_of_a_table_keeps_its_version(publication: Path) -> None:
    source = PublicationSource(str(publication))
    held = source.load("1", None)
    part = held.tables["C1"][5:500]  # as a request in flight, or a module's parameter
    view = held.tables["C2"].numpy()[7:]
    expected, seen = part.clone(), view.copy()
    for number in range(2, VERSIONS + 1):
        held = source.load(str(number), held)
        gc.collect()
    assert torch.equal(part, expected)
    assert (view == seen).all()


def test_two_versions_of_a_table_are_in_memory(publication: Path) -> None:
    source = PublicationSource(str(publication))
    held = source.load("1", None)
    places = [held.tables["C1"].data_ptr()]
    for number in range(2, VERSIONS + 1):
        held = source.load(str(number), held)
        places.append(held.tables["C1"].data_ptr())
    assert len(set(places)) == 2
    assert all(place != other for place, other in pairwise(places))
    alone = PublicationSource(str(publication)).load(str(VERSIONS), None)
    assert torch.equal(held.tables["C1"], alone.tables["C1"])


def test_after_a_version_that_was_not_taken_the_one_in_use_is_built_upon(publication: Path) -> None:
    source = PublicationSource(str(publication))
    held = source.load("2", source.load("1", None))
    source.load("3", held)  # cannot be prepared by the server, say
    gc.collect()
    found = source.load("4", held)
    alone = PublicationSource(str(publication)).load("4", None)
    for name, table in alone.tables.items():
        assert torch.equal(found.tables[name], table)


def test_only_the_delta_is_read_by_who_holds_the_version_before(copy: Path) -> None:
    source = PublicationSource(str(copy))
    held = source.load(str(VERSIONS - 1), None)
    for path in (copy / "data").glob(f"0000000[1-{VERSIONS - 1}].*"):
        shutil.rmtree(path)
    found = PublicationSource(str(copy)).load(str(VERSIONS), held)
    assert found.step > held.step
    with pytest.raises(PublicationError, match="missing; it may be of a version that is removed by now"):
        PublicationSource(str(copy)).load(str(VERSIONS), None)


def test_a_model_of_elsewhere_is_not_built_upon(publication: Path, checkpoints: Path, tmp_path: Path) -> None:
    for step in steps_of(checkpoints)[3:5]:
        publishing(checkpoints, tmp_path / "other", "--step", step)
    other = PublicationSource(str(tmp_path / "other")).load("1", None)
    found = PublicationSource(str(publication)).load("2", other)
    alone = PublicationSource(str(publication)).load("2", None)
    for name, table in alone.tables.items():
        assert torch.equal(found.tables[name], table)


def test_a_reader_written_by_the_guide_finds_the_same_rows(publication: Path) -> None:
    """By docs/publishing.md alone, without a line of the trainer."""

    def manifest(number: int) -> tuple[dict[str, Any], str]:
        line, seal = (publication / "versions" / f"{number:08d}.jsonl").read_bytes().splitlines()
        digest = hashlib.sha256(line).hexdigest()
        assert json.loads(seal)["sha256"] == digest
        return json.loads(line), digest

    def piece(found: dict[str, Any]) -> bytes:
        data = (publication / found["object"]).read_bytes()[found["position"] :][: found["bytes"]]
        assert hashlib.sha256(data).hexdigest() == found["sha256"]
        return data

    newest = max(int(path.stem) for path in publication.glob("versions/*.jsonl"))
    document, _ = manifest(newest)
    chain = [document]
    while not document["full"]:
        parent = document["parent"]
        document, digest = manifest(parent["version"])
        assert digest == parent["sha256"]
        chain.insert(0, document)
    arrays = {
        name: np.load(io.BytesIO(piece(array["whole"]))) for name, array in chain.pop(0)["arrays"].items()
    }
    for document in chain:
        for name, array in document["arrays"].items():
            if array["change"]["count"]:
                numbers = np.frombuffer(piece(array["change"]["numbers"]), "<u4")
                values = np.frombuffer(piece(array["change"]["values"]), array["dtype"])
                arrays[name][numbers] = values.reshape(-1, *array["shape"][1:])
    loaded = PublicationReader(str(publication)).load(str(newest)).arrays
    assert arrays.keys() == loaded.keys()
    assert all((arrays[name] == loaded[name]).all() for name in arrays)
    assert json.loads(line_of(publication, newest))["format"] == "cloudrec-publication"


def line_of(publication: Path, number: int) -> str:
    """The first line of a manifest."""
    return (publication / "versions" / f"{number:08d}.jsonl").read_text().splitlines()[0]


def _flip(path: Path, at: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def _document(folder: Path, number: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest and seal it again, as anyone who may write there can."""
    path = folder / "versions" / f"{number:08d}.jsonl"
    document = json.loads(line_of(folder, number))
    change(document)
    line = json.dumps(document).encode()
    seal = json.dumps({"sha256": hashlib.sha256(line).hexdigest()}).encode()
    path.write_bytes(line + b"\n" + seal + b"\n")


def _blob(folder: Path, number: int) -> Path:
    (path,) = folder.glob(f"data/{number:08d}.*/changes.bin")
    return path


def _base(folder: Path, name: str) -> Path:
    (path,) = folder.glob(f"data/00000001.*/export/{name}")
    return path


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a row of a delta": (lambda each: _flip(_blob(each, 4), 200), "damaged: the sha256 of"),
    "a delta ends early": (lambda each: _cut(_blob(each, 8)), "bytes too early"),
    "a delta is gone": (lambda each: _blob(each, 4).unlink(), "missing"),
    "a table of the base": (lambda each: _flip(_base(each, "tables/C2.npy")), "damaged: the sha256"),
    "a table's header": (lambda each: _flip(_base(each, "tables/C2.npy"), 20), "damaged: the sha256"),
    "a table is gone": (lambda each: _base(each, "tables/C2.npy").unlink(), "missing"),
    "a manifest": (lambda each: _flip(each / "versions/00000004.jsonl", 300), "damaged"),
    "a manifest is cut": (lambda each: _cut(each / "versions/00000008.jsonl"), "damaged"),
    "a manifest is empty": (lambda each: (each / "versions/00000008.jsonl").write_bytes(b""), "damaged"),
    "a manifest is gone": (
        lambda each: (each / "versions/00000004.jsonl").unlink(),
        "has no version 00000004",
    ),
    "another manifest": (
        lambda each: shutil.copy(each / "versions/00000003.jsonl", each / "versions/00000008.jsonl"),
        "its number does not fit",
    ),
    "a parent that was replaced": (
        lambda each: _document(each, 4, lambda document: document.update(created="later")),
        "was made from another version 00000004",
    ),
    "a newer format": (
        lambda each: _document(each, 8, lambda document: document.update(schema_version=2)),
        "schema_version is 2, this reader reads 1; update the reader",
    ),
    "something else": (
        lambda each: _document(each, 8, lambda document: document.update(format="cloudrec-checkpoint")),
        "its format is 'cloudrec-checkpoint'",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_refused_with_its_place_and_a_remedy(copy: Path, tmp_path: Path, damage: str) -> None:
    act, message = DAMAGES[damage]
    act(copy)
    code, out, problem = command(publish.main, "apply", copy, tmp_path / "applied")
    assert (code, out) == (1, "")
    assert message in problem
    assert "Traceback" not in problem
    assert not (tmp_path / "applied" / "config.json").exists()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_full_version_heals_a_damaged_publication(
    checkpoints: Path, copy: Path, tmp_path: Path, damage: str
) -> None:
    DAMAGES[damage][0](copy)
    words = ["--checkpoint", checkpoints, "--out", copy, "--step", steps_of(checkpoints)[2]]
    code, _, problem = command(publish.main, *words, "--full")
    if damage in {"a newer format", "something else"}:  # it is not ours to build upon
        assert (code, "versions/00000008.jsonl" in problem) == (1, True)
        return
    assert code == 0, problem
    expected = exported(checkpoints, tmp_path / "export", "fp16", steps_of(checkpoints)[2])
    assert applied(copy, tmp_path / "applied") == expected


def _array(document: dict[str, Any], name: str = "tables/C1") -> dict[str, Any]:
    found: dict[str, Any] = document["arrays"][name]
    return found


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "an object outside": lambda d: _array(d)["change"]["values"].update(object="data/../../etc/passwd"),
    "an absolute object": lambda d: _array(d)["change"]["values"].update(object="/etc/passwd"),
    "a hidden object": lambda d: _array(d)["change"]["values"].update(object="data/.hidden"),
    "a manifest as an object": lambda d: _array(d)["change"]["values"].update(object="versions/1.jsonl"),
    "a file outside": lambda d: d["files"].update({"../../x": next(iter(d["files"].values()))}),
    "a file with a backslash": lambda d: d["files"].update({"a\\b": next(iter(d["files"].values()))}),
    "an array outside": lambda d: d["arrays"].update({"tables/../x": _array(d)}),
    "an array of no kind": lambda d: d["arrays"].update({"other/x": _array(d)}),
    "a huge array": lambda d: _array(d).update(shape=[2**61, 8]),
    "an empty array": lambda d: _array(d).update(shape=[0, 8]),
    "a negative size": lambda d: _array(d).update(shape=[-4, 8]),
    "sizes that are no numbers": lambda d: _array(d).update(shape=["4", True]),
    "objects as elements": lambda d: _array(d).update(dtype="|O"),
    "too many rows": lambda d: _array(d)["change"].update(count=10**12),
    "too few bytes": lambda d: _array(d)["change"]["values"].update(bytes=3),
    "a huge position": lambda d: _array(d)["change"]["values"].update(position=2**70),
    "no sha256": lambda d: _array(d)["change"]["values"].update(sha256="x"),
    "another width": lambda d: _array(d).update(shape=[4000, 9]),
    "fewer rows": lambda d: _array(d).update(shape=[3999, 8]),
    "no rows": lambda d: _array(d).update(change=None),
    "a parent of later": lambda d: d["parent"].update(version=9),
    "itself as its parent": lambda d: d["parent"].update(version=8),
    "no parent": lambda d: d.update(parent=None),
    "no arrays": lambda d: d.pop("arrays"),
    "arrays of another kind": lambda d: d.update(arrays=[1]),
    "a token with a path": lambda d: d.update(token="../x"),  # noqa: S106 - of a writer
    "an unknown precision": lambda d: d.update(precision="fp64"),
    "a listed file that is not there": lambda d: d["listed"].append("tables/X.npy"),
    "neither full nor delta": lambda d: d.update(delta=False),
    "full without rows": lambda d: d.update(full=True),
    "a version of text": lambda d: d.update(version="8"),
}


@pytest.mark.parametrize("way", HOSTILE)
def test_hostile_manifests_are_refused(copy: Path, tmp_path: Path, way: str) -> None:
    _document(copy, VERSIONS, HOSTILE[way])
    code, out, problem = command(publish.main, "apply", copy, tmp_path / "applied")
    assert (code, out) == (1, "")
    assert problem.startswith("error: ")
    assert problem.count("\n") == 1
    assert [path for path in tmp_path.rglob("*") if path.name in {"x", "passwd"}] == []


@pytest.mark.parametrize(
    "source",
    [
        {"layers": [[["../../etc/passwd", 1, 1]]]},
        {"layers": [[["/etc/passwd", 1, 1]]]},
        {"layers": [[["step-1/x.json", "a", 1e300]]]},
        {"layers": 5},
        {"base": ["a"], "layers": [[]]},
    ],
)
def test_hostile_layers_are_compared_as_those_of_another_run(
    checkpoints: Path, copy: Path, tmp_path: Path, source: dict[str, Any]
) -> None:
    step = steps_of(checkpoints)[-2]
    _document(copy, VERSIONS, lambda document: document["source"].update(source))
    report = publishing(checkpoints, copy, "--step", step)
    assert (report["delta"], report["found_by"]) == (True, "compared")
    assert applied(copy, tmp_path / "applied") == exported(checkpoints, tmp_path / "export", "fp16", step)


def test_a_model_that_no_one_knows_is_refused(copy: Path) -> None:
    for change in (
        lambda d: d["export"].update(model={"no": "model"}),
        lambda d: d["export"]["config"].update(batch_size=-1),
        lambda d: d["export"].pop("config"),
        lambda d: d.update(precision="int8"),
    ):
        _document(copy, VERSIONS, change)
        with pytest.raises(TrainerError):
            PublicationSource(str(copy)).load(str(VERSIONS), None)


def test_versions_and_places_are_checked(publication: Path, tmp_path: Path) -> None:
    reader = PublicationReader(str(publication))
    for name in ("newest", "-1", "1.0", "9" * 30):
        with pytest.raises(ConfigError, match="it is a number"):
            reader.load(name)
    with pytest.raises(PublicationError, match="has no version 00000099"):
        reader.load("99")
    with pytest.raises(PublicationError, match="holds no version"):
        PublicationReader(str(tmp_path)).newest()
    (tmp_path / "file").write_bytes(b"")
    code, _, problem = command(publish.main, "apply", publication, tmp_path)
    assert (code, "is not an empty folder" in problem) == (64, True)


def _update_numbers(values: dict[str, str], document: dict[str, Any]) -> None:
    _array(document)["change"]["numbers"].update(values)


def test_rows_of_a_delta_must_ascend(copy: Path) -> None:
    document = json.loads((copy / "versions" / "00000008.jsonl").read_text().splitlines()[0])
    piece = _array(document)["change"]["numbers"]
    blob = copy / piece["object"]
    content = bytearray(blob.read_bytes())
    start, stop = piece["position"], piece["position"] + piece["bytes"]
    numbers = np.frombuffer(bytes(content[start:stop]), "<u4")
    for wrong in (numbers[::-1], np.zeros_like(numbers), numbers + 4000):
        content[start:stop] = wrong.astype("<u4").tobytes()
        blob.write_bytes(content)
        sealed = {"sha256": hashlib.sha256(content[start:stop]).hexdigest()}
        _document(copy, 8, partial(_update_numbers, sealed))
        with pytest.raises(PublicationError, match="are not ascending numbers below 4000"):
            PublicationReader(str(copy)).load("8")

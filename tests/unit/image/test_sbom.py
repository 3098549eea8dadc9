"""The bill of materials: it has every locked package, with its hashes, and says so in CycloneDX's terms."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cloudrec.cli.main import run
from cloudrec.image import bootstrap
from cloudrec.image.sbom import bill_of_materials

LOCK = Path(bootstrap.__file__).parent / "files" / bootstrap.LOCK


def test_it_has_every_locked_package_with_all_hashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["image", "sbom"]) == 0
    document = json.loads(capsys.readouterr().out)
    locked = json.loads(LOCK.read_text())["packages"]
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", document["serialNumber"])
    assert {(each["name"], each["version"]) for each in document["components"]} == {
        (each["name"], each["version"]) for each in locked
    }
    assert set(bootstrap.PARTS) == {part for each in locked for part in each["extras"]}
    hashes = re.findall(r'"content": "([0-9a-f]{64})"', json.dumps(document))
    assert sorted(hashes) == sorted(each for package in locked for each in package["sha256"])
    references = [each["bom-ref"] for each in document["components"]]
    assert len(set(references)) == len(references)
    assert document["dependencies"][0]["dependsOn"] == references


def test_a_part_has_only_its_packages_and_the_document_can_be_compared() -> None:
    base = bill_of_materials(("base",))
    assert base == bill_of_materials(("base",))
    assert base["serialNumber"] != bill_of_materials(("aws",))["serialNumber"]
    assert "torch" not in {each["name"] for each in base["components"]}
    assert "torch" in {each["name"] for each in bill_of_materials(("trainer",))["components"]}


def test_json_is_one_document_with_the_schema_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["image", "sbom", "--part", "base", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] >= 1
    assert document["sbom"]["bomFormat"] == "CycloneDX"

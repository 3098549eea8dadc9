"""Each set of applied objects equals its golden file.

After an intended change, run `make golden` and review the difference.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudrec.kubernetes.manifests import text
from tests.unit.kubernetes_manifests.support_matrix import SETS, rendered

_GOLDEN = Path(__file__).parents[2] / "golden" / "k8s"


@pytest.mark.parametrize("name", SETS)
def test_the_objects_match_the_golden_file(name: str) -> None:
    golden = _GOLDEN / f"{name}.yaml"
    if os.environ.get("CLOUDREC_WRITE_GOLDEN"):
        golden.write_text(text(rendered(name)), encoding="utf-8")
    assert list(_read(golden.read_text(encoding="utf-8"))) == list(rendered(name)), f"{__doc__}"


def test_every_golden_file_belongs_to_a_rendered_object() -> None:
    assert {path.stem for path in _GOLDEN.glob("*.yaml")} == set(SETS)


def _read(document: str) -> list[Any]:
    return list(yaml.load_all(document, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))

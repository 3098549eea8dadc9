"""What is applied changes only on purpose: each set of objects is the same as its golden file.

After a change on purpose: CLOUDREC_WRITE_GOLDEN=1 pytest tests/unit/manifests/test_golden.py, and read the
difference.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudrec.manifests import text
from tests.unit.manifests.support_matrix import matrix

_GOLDEN = Path(__file__).parents[2] / "golden" / "k8s"
_SETS = dict(matrix())


@pytest.mark.parametrize("name", _SETS)
def test_the_objects_are_those_of_the_golden_file(name: str) -> None:
    golden = _GOLDEN / f"{name}.yaml"
    if os.environ.get("CLOUDREC_WRITE_GOLDEN"):
        golden.write_text(text(_SETS[name]), encoding="utf-8")
    assert list(_read(golden.read_text(encoding="utf-8"))) == list(_SETS[name]), f"{__doc__}"


def test_there_is_no_golden_file_of_what_is_no_more() -> None:
    assert {path.stem for path in _GOLDEN.glob("*.yaml")} == set(_SETS)


def _read(document: str) -> list[Any]:
    return list(yaml.load_all(document, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))

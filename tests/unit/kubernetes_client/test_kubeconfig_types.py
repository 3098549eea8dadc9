"""A kubeconfig whose parts are of another type is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.client.credentials import Kubeconfig

RIGHT: dict[str, Any] = {
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "a", "user": {"token": "t"}}],
}


@pytest.mark.parametrize("section", ["contexts", "clusters", "users"])
@pytest.mark.parametrize("value", [-1.8e107, "x", {"a": 1}, [1], [[]], [{"name": "a", "PART": 7}]])
def test_a_section_of_another_type_is_named(tmp_path: Path, section: str, value: object) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({**RIGHT, section: value}).replace("PART", section.removesuffix("s")))
    with pytest.raises(PreflightError, match=f"no kubeconfig: {section} is not a list"):
        Kubeconfig(path, "")


def test_a_valid_kubeconfig_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(RIGHT))
    assert Kubeconfig(path, "").server == "https://127.0.0.1:1"

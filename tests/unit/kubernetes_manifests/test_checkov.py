"""Every finding of Checkov in a manifest has an explanation in checkov.yaml.

Checkov's requirements conflict with those of this environment, so it has a separate virtual
environment, which this test creates at its first run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudrec.kubernetes.manifests import text
from tests.unit.kubernetes_manifests.support_matrix import matrix, pod_templates

_ROOT = Path(__file__).parents[3]
_EXPLAINED: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("checkov.yaml").read_text("utf-8"))
_OF_OPERATORS = {"PyTorchJob", "TrainJob", "TrainingRuntime", "RayJob"}


@pytest.mark.soak
def test_checkov_has_no_unexplained_finding(tmp_path: Path) -> None:
    for name, found in matrix():
        (tmp_path / f"{name}.yaml").write_text(text(_shown(found)), encoding="utf-8")
    report = _report(tmp_path)
    assert report["summary"]["passed"] > 5000, report["summary"]
    assert report["summary"]["parsing_errors"] == 0
    needed, unexplained = set(), []
    for finding in report["results"]["failed_checks"]:
        which = f"{Path(finding['file_path']).stem}/{finding['resource'].partition('.')[0]}"
        why = [each["check"] for each in _EXPLAINED["explained"] if _explains(each, finding, which)]
        needed.update(why)
        if not why:
            unexplained.append(f"{finding['check_id']} {finding['check_name']}: {which}")
    assert not unexplained, "\n".join(sorted(set(unexplained)))
    assert needed == {each["check"] for each in _EXPLAINED["explained"]}, "some explanations explain nothing"
    print(report["summary"])


def _explains(explained: dict[str, Any], finding: dict[str, Any], which: str) -> bool:
    same = explained["check"] == finding["check_id"]
    return same and any(fnmatch(which, pattern) for pattern in explained["objects"])


def _shown(found: tuple[dict[str, Any], ...]) -> Iterator[dict[str, Any]]:
    """Yield the objects; the pod templates of kinds unknown to checkov become Pods."""
    for each in found:
        if each["kind"] not in _OF_OPERATORS:
            yield each
            continue
        for number, pod in enumerate(pod_templates(each)):
            place = {
                "name": f"{each['metadata']['name']}-{number}",
                "namespace": each["metadata"]["namespace"],
            }
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**pod["metadata"], **place},
                "spec": pod["spec"],
            }


def _report(folder: Path) -> dict[str, Any]:
    program = [_program(), "--directory", str(folder), "--framework", "kubernetes"]
    options = ["--skip-download", "--compact", "--quiet", "--output", "json"]
    ended = subprocess.run([*program, *options], capture_output=True, text=True, check=False, timeout=600)
    assert ended.stdout, ended.stderr
    found = json.loads(ended.stdout)
    report: dict[str, Any] = found[0] if isinstance(found, list) else found
    return report


def _program() -> str:
    """Return checkov of the reviewed version; install it if it is missing."""
    version = _EXPLAINED["version"]
    folder = Path(os.environ.get("CLOUDREC_CHECKOV", _ROOT / ".checkov"))
    program = folder / "bin" / "checkov"
    if not program.exists():
        venv.create(folder, with_pip=True)
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", f"checkov=={version}"]
        ended = subprocess.run(install, capture_output=True, text=True, check=False, timeout=900)
        if ended.returncode:
            pytest.skip(f"checkov {version} cannot be installed: {ended.stderr.strip()[-300:]}")
    print(f"checkov of {sys.version_info.major}.{sys.version_info.minor} in {folder}")
    return str(program)

"""Every finding of cloudsplaining and parliament in infra/aws has an explanation in policies.yaml.

Their requirements conflict with those of this environment, so they have a separate virtual
environment, which this test creates at its first run.
"""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).parents[3]
_EXPLAINED: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("policies.yaml").read_text("utf-8"))
# Runs in that environment and prints findings as [policy, finding, detail] rows.
_LOOK = """
import json, pathlib, sys
from cloudsplaining.scan.policy_document import PolicyDocument
from parliament import analyze_policy_string

rows = []
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
    text = path.read_text(encoding="utf-8")
    document = PolicyDocument(json.loads(text))
    for finding in (
        "allows_privilege_escalation",
        "credentials_exposure",
        "allows_data_exfiltration_actions",
        "permissions_management_without_constraints",
        "infrastructure_modification",
    ):
        rows += [[path.stem, finding, str(each)] for each in getattr(document, finding)]
    rows += [[path.stem, each.issue, str(each.detail)] for each in analyze_policy_string(text).findings]
print(json.dumps(rows))
"""


@pytest.mark.soak
def test_policy_linters_have_no_unexplained_finding() -> None:
    found = _found(_ROOT / "infra" / "aws")
    explained = [
        (each["policy"], each["finding"], each.get("detail", "")) for each in _EXPLAINED["explained"]
    ]
    used, unexplained = set(), []
    for policy, finding, detail in found:
        why = [each for each in explained if each[:2] == (policy, finding) and detail.startswith(each[2])]
        used.update(why)
        if not why:
            unexplained.append(f"{policy}: {finding}: {detail}")
    assert unexplained == []
    assert used == set(explained), "some explanations explain nothing"


def _found(folder: Path) -> list[list[str]]:
    ended = subprocess.run(
        [_python(), "-c", _LOOK, str(folder)], capture_output=True, text=True, check=False, timeout=600
    )
    assert ended.returncode == 0, ended.stderr
    rows: list[list[str]] = json.loads(ended.stdout)
    return rows


def _python() -> str:
    """Return the Python with the linters; install them if they are missing."""
    folder = Path(os.environ.get("CLOUDREC_POLICY_LINTERS", _ROOT / ".policies"))
    python = folder / "bin" / "python"
    wanted = [f"{name}=={version}" for name, version in _EXPLAINED["versions"].items()]
    if not (folder / "bin" / "cloudsplaining").exists():
        venv.create(folder, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *wanted]
        ended = subprocess.run(install, capture_output=True, text=True, check=False, timeout=900)
        if ended.returncode:
            pytest.skip(f"{', '.join(wanted)} cannot be installed: {ended.stderr.strip()[-300:]}")
    return str(python)

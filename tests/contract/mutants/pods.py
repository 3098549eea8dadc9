"""Jobs of the torchrun launcher, changed and sent raw to an API server, which only tries them.

What Kubernetes does with a changed Job is what a real API server answers: recorded-pods.json has the answers
of one for a machine of each fabric. `python -m benchmarks.mutants --record` asks it again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.manifests import run_objects
from tests.contract.mutants.changes import UNKNOWN, Mutant, mutants
from tests.contract.mutants.sending import Answer, Counts, Result
from tests.contract.mutants.verdicts import Verdict, table
from tests.unit.kubernetes_manifests.support_matrix import FAMILIES, profile, workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.kubernetes.joined.connection import Connection
    from tests.contract.mutants.verdicts import Kind

RECORDED = Path(__file__).with_name("recorded-pods.json")
FABRICS = ("aws-p5", "azure-nd-h100-v5", "gcp-a3-high", "gcp-a3-mega", "gcp-a2")
NAMESPACE = "default"
_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_FIRST_REFUSAL, _FIRST_DEFECT = 400, 500


def jobs(family: str) -> Iterator[tuple[str, Mutant]]:
    """Yield each mutant of the Job of a machine family, with a name that is stable."""
    target = replace(FAMILIES[family], namespace=NAMESPACE)
    document = next(
        each
        for each in run_objects("torchrun", workload(family), target, profile(target))
        if each["kind"] == "Job"
    )
    rules = table("pods")
    for mutant in mutants(document, alternatives=rules.alternatives, keep=rules.keep):
        yield str(mutant), mutant


def ask(connection: Connection, mutant: Mutant) -> Answer:
    """Return what an API server does with the Job in a dry run."""
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        answer = connection.ask("POST", _JOBS, body=mutant.document, query=query)
    except HTTPException as error:  # the server ends the connection where its validation fails itself
        return Answer(outcome="defect", words=str(error))
    if answer.status < _FIRST_REFUSAL:
        return Answer(outcome="accepted")
    words = str(answer.body.get("message", "")) if isinstance(answer.body, dict) else ""
    return Answer(outcome="refused" if answer.status < _FIRST_DEFECT else "defect", words=words)


def record(connection: Connection) -> dict[str, Any]:
    """Return the answers of a real API server: for each family, the mutants that it does not refuse."""
    version = connection.call("GET", "/version")["gitVersion"]
    found: dict[str, dict[str, list[str]]] = {"accepted": defaultdict(list), "defect": defaultdict(list)}
    for family in FABRICS:
        for name, mutant in jobs(family):
            outcome = ask(connection, mutant).outcome
            if outcome != "refused":
                found[outcome][family].append(name)
    return {"version": version, **found}


def recorded() -> dict[str, Any]:
    """Return the recorded answers."""
    found: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
    return found


def compare(connection: Connection, family: str) -> Counts:
    """Send the mutants of a family to a stand-in, and compare with the recorded answers."""
    known = recorded()
    accepted, failed = set(known["accepted"][family]), set(known["defect"].get(family, ()))
    source = f"kube-apiserver {known['version']}"
    counts = Counts()
    for name, mutant in jobs(family):
        kind: Kind = "free" if name in accepted else "unknown" if name in failed else "refuse"
        counts.results.append(
            Result(
                cloud="kubernetes",
                machine=family,
                request="Job",
                mutant=mutant,
                verdict=Verdict(kind=kind, reason="its answer", source=source),
                answer=ask(connection, mutant),
            )
        )
    return counts


__all__ = ["FABRICS", "FAMILIES", "RECORDED", "UNKNOWN", "ask", "compare", "jobs", "record", "recorded"]

"""What Google Cloud has of a cluster's end, and what end that is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_EXPIRES
from cloudrec.providers.gcp.api import labels
from cloudrec.providers.gcp.nodes import end_jobs, end_workflow
from cloudrec.providers.gcp.nodes.end_workflow import Program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.gcp.nodes.end_jobs import Job
    from cloudrec.providers.gcp.nodes.end_workflow import Workflow

_READ = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")  # of a label that the workflow can read
_MIXED = "in part"  # a change between jobs of pools and a workflow was interrupted
_NOTHING: Mapping[str, object] = {
    "cluster": "",
    "expires": "",
    "pools": {},
    "account": "",
    "moves": True,
    "limit": "",
}


@dataclass(kw_only=True)
class FoundEnd:
    """What Google Cloud has of one end.

    Attributes:
        jobs: the jobs that end pools.
        starters: the jobs that start a workflow.
        workflows: the workflows.
    """

    jobs: list[Job] = field(default_factory=list)
    starters: list[Job] = field(default_factory=list)
    workflows: list[Workflow] = field(default_factory=list)

    def pools(self) -> dict[str, str]:
        """Return the pools that the jobs or the workflows end, each with its method."""
        programs = [Program.of(each.get("sourceContents", "")) for each in self.workflows]
        found = {name: way for program in programs if program for name, way in program.pools.items()}
        return found | {end_jobs.pool(job): end_jobs.method(job) or end_jobs.RESIZE for job in self.jobs}

    def observed(self, ends: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, object]]:
        """Return the tags and the properties.

        Args:
            ends: the end in the label of each cluster, by its path.
        """
        if self.workflows:
            return _of_workflow(self, ends)
        if self.jobs:
            return _of_jobs(self)
        return end_jobs.tags(self.starters[0]), _NOTHING  # the workflow was deleted


def _of_jobs(found: FoundEnd) -> tuple[Mapping[str, str], Mapping[str, object]]:
    """Return the tags and the properties of an end that jobs keep."""
    jobs = found.jobs
    properties = {
        "cluster": _only({end_jobs.cluster(job) for job in jobs}),
        "expires": _only({end_jobs.end(job) for job in jobs}),
        "pools": {end_jobs.pool(job): end_jobs.method(job) for job in jobs},
        "account": _only({end_jobs.account(job) for job in jobs}),
        "moves": _MIXED if found.starters else False,
        "limit": "",
    }
    return end_jobs.tags(jobs[0]), properties


def _of_workflow(found: FoundEnd, ends: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, object]]:
    """Return the tags and the properties of an end that a workflow keeps: the end is that of the label."""
    started = {end_jobs.starts(job) for job in found.starters}
    first = next((each for each in found.workflows if each["name"] in started), found.workflows[0])
    tags, account = labels.decode(first.get("labels", {})), end_workflow.email(first)
    program = Program.of(first.get("sourceContents", ""))
    if program is None:
        return tags, {**_NOTHING, "account": account}
    expires = _effective(program, ends.get(program.cluster, ""))
    is_kept = started == {first["name"]} and len(found.starters) == 1 and is_intact(first, account)
    is_kept = is_kept and {end_jobs.account(job) for job in found.starters} == {account}
    is_alone = len(found.workflows) == 1 and not found.jobs
    properties = {
        "cluster": program.cluster,
        "expires": expires if is_kept else "",
        "pools": dict(program.pools),
        "account": account,
        "moves": is_alone or _MIXED,
        "limit": "" if program.limit is None else end_workflow.written(program.limit),
    }
    return {**tags, TAG_EXPIRES: expires}, properties


def _effective(program: Program, label: str) -> str:
    """Return the end that a workflow enforces, as it computes it.

    Args:
        program: of the workflow.
        label: the end in the cluster's label, ISO 8601; empty for none.
    """
    try:
        end = end_workflow.epoch(label) if _READ.fullmatch(label) else program.expires
    except ValueError:
        end = program.expires
    return end_workflow.written(min(end, program.limit) if program.limit is not None else end)


def is_intact(workflow: Workflow, account: str) -> bool:
    """Return whether no one has changed a workflow since it was made: its name has a hash of its program."""
    source = str(workflow.get("sourceContents", ""))
    tail = end_workflow.name_of("", "", source).rpartition("-")[2]
    return str(workflow["name"]).endswith(f"-{tail}") and end_workflow.email(workflow) == account


def _only(found: set[str]) -> str:
    """Return the value that all jobs have; empty if they differ."""
    return found.pop() if len(found) == 1 else ""

"""A Job's podFailurePolicy and successPolicy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.storage.mirror import condition, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

IGNORE, COUNT, FAIL_JOB, FAIL_INDEX = "Ignore", "Count", "FailJob", "FailIndex"


def verdict(job: Mapping[str, Any], pod: Mapping[str, Any]) -> tuple[str, str]:
    """Return the action of the first rule that matches a failed pod (Count without one), and its message."""
    policy = job["spec"].get("podFailurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or ()):
        what = _matches_codes(rule, pod) if "onExitCodes" in rule else _matches_conditions(rule, pod)
        if what:
            return rule["action"], f"{what} matching {rule['action']} rule at index {number}"
    return COUNT, ""


def _matches_codes(rule: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    wish = rule["onExitCodes"]
    for name, code in exit_codes(pod):
        if code == 0 or wish.get("containerName") not in (None, name):
            continue
        if (code in wish["values"]) == (wish["operator"] == "In"):
            space, own = key_of(pod)
            return f"Container {name} for pod {space}/{own} failed with exit code {code}"
    return ""


def _matches_conditions(rule: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    for wish in rule.get("onPodConditions") or ():
        found = condition(pod, wish["type"])
        if found is not None and found["status"] == wish.get("status", "True"):
            space, own = key_of(pod)
            return f"Pod {space}/{own} has condition {wish['type']}"
    return ""


def exit_codes(pod: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the containers of a pod that have ended, with their exit codes."""
    status = pod.get("status", {})
    for each in [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]:
        ended = (each.get("state") or {}).get("terminated")
        if ended:
            yield each["name"], int(ended["exitCode"])


def meets_success_policy(job: Mapping[str, Any], completed: set[int]) -> str:
    """Return the message of the success policy's rule that the indexes meet; "" if none is met."""
    policy = job["spec"].get("successPolicy") or {}
    for number, rule in enumerate(policy.get("rules") or ()):
        wanted = parsed(rule["succeededIndexes"]) if "succeededIndexes" in rule else None
        found = completed if wanted is None else completed & wanted
        least = rule.get("succeededCount", len(wanted) if wanted is not None else 0)
        if len(found) >= least:
            return f"Matched rules at index {number}"
    return ""


def parsed(indexes: str) -> set[int]:
    """Return the indexes written as "0,2-4"."""
    found: set[int] = set()
    for part in filter(None, indexes.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def written(indexes: set[int]) -> str:
    """Return the indexes written as `parsed` reads them."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][-1] == index - 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(_range(part) for part in parts)


def _range(part: list[int]) -> str:
    # The API writes a range only from three indexes on: "0,1", but "0-2".
    two = 2
    if len(part) > two:
        return f"{part[0]}-{part[-1]}"
    return ",".join(map(str, part))

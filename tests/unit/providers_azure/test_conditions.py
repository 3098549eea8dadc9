"""The condition of the keeper's role, judged by the stand-in's evaluator of Azure's language."""

from __future__ import annotations

import pytest

from cloudrec.providers.azure.identity.conditions import turns_condition
from cloudrec_sandbox.azure.services.authorization.abac import CONTAINERS, Attempt, named
from cloudrec_sandbox.azure.services.authorization.abac_syntax import parse

ODD = "team/a*b!'(x)"


def allows(prefix: str, action: str, *, path: str = "", listed: str | None = None) -> bool:
    """Whether an action on a blob is allowed, or a list of names with a prefix."""
    where = {f"@Resource[{CONTAINERS}/blobs:path]": path} if path else {}
    if listed is not None:
        where[f"@Request[{CONTAINERS}/blobs:prefix]"] = listed
    attempt = Attempt(
        action=f"{CONTAINERS}/blobs/{action}",
        suboperations=frozenset() if path else frozenset({"Blob.List"}),
        attributes=named({f"@Resource[{CONTAINERS}:name]": "data", **where}),
    )
    return parse(turns_condition(prefix)).holds(attempt) is True


@pytest.mark.parametrize("prefix", ["", "team", ODD])
def test_a_keeper_uses_the_turns_and_lists_what_pods_write(prefix: str) -> None:
    under = f"{prefix}/" if prefix else ""
    for action in ("read", "write", "add/action"):
        assert allows(prefix, action, path=f"{under}turns/r/1.json")
        for other in (f"{under}runs/r/data", f"{under}turns", "turns.json", f"other/{under}turns/r/1.json"):
            assert not allows(prefix, action, path=other), other
    for action in ("delete", "move/action"):
        assert not allows(prefix, action, path=f"{under}turns/r/1.json")
    for listed in (f"{under}turns/r/", f"{under}runs/r/pods/", f"{under}runs/r/pods/p/"):
        assert allows(prefix, "read", listed=listed)
    assert not allows(prefix, "read", listed=None)
    for listed in ("", under, f"{under}runs/", f"{under}runs/r/", f"{under}runs/r/pods", "data/"):
        assert not allows(prefix, "read", listed=listed), listed


def test_a_star_in_the_prefix_is_no_wildcard() -> None:
    assert not allows(ODD, "read", path="team/aXb!'(x)/turns/r/1.json")
    assert not allows(ODD, "read", listed="team/aXb!'(x)/runs/r/pods/")

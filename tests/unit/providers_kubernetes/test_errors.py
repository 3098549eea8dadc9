"""An error after the creation of an object keeps its exit code, its remedy and its verdict."""

from __future__ import annotations

import pytest

from cloudrec.engine.graph import ErrorVerdict
from cloudrec.kubernetes.client.errors import DeniedError, KubeError, OverloadedError
from cloudrec.providers.base.driver import UnfinishedError
from cloudrec.providers.kubernetes.cluster.cluster import NamespaceDriver


def _overloaded(*, had_no_effect: bool) -> OverloadedError:
    error = OverloadedError("slow down")
    error.had_no_effect = had_no_effect
    return error


@pytest.mark.parametrize(
    ("cause", "verdict"),
    [
        # Even a call that had no effect: the object exists, so a search comes before any new attempt.
        (_overloaded(had_no_effect=True), ErrorVerdict.LOST),
        (_overloaded(had_no_effect=False), ErrorVerdict.LOST),
        (DeniedError("may not patch"), ErrorVerdict.FATAL),
        (KubeError("refused"), ErrorVerdict.FATAL),
    ],
)
def test_a_created_object_is_searched_for_before_a_retry(cause: Exception, verdict: ErrorVerdict) -> None:
    driver = NamespaceDriver.__new__(NamespaceDriver)
    assert driver.verdict(UnfinishedError(cause)) is verdict


def test_a_denied_completion_has_the_exit_code_and_the_remedy_of_a_denied_call() -> None:
    driver = NamespaceDriver.__new__(NamespaceDriver)
    denied = DeniedError("may not patch", remedy="grant it")
    found = driver.explain(UnfinishedError(denied))
    assert (found.exit_code, found.remedy) == (3, "grant it")

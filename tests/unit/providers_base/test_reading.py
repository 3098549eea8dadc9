"""Answers whose fields are missing or of another type: reads are repeated, changes count as lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import SerializationError
from botocore.exceptions import UnknownEndpointError

from cloudrec.engine.clock import Clock
from cloudrec.engine.context import Context
from cloudrec.engine.graph import Condition, ErrorVerdict, Observed, Resource
from cloudrec.engine.journal import Journal
from cloudrec.errors import CloudrecError, MisreadAnswerError, PreflightError
from cloudrec.providers.aws import errors as aws_errors
from cloudrec.providers.azure import errors as azure_errors
from cloudrec.providers.base.driver import CloudDriver, UnfinishedError
from cloudrec.providers.base.reading import answers_read, read
from cloudrec.providers.gcp import errors as gcp_errors
from cloudrec_contract.safe_json import safe_json

ANSWER: Mapping[str, str] = {}


class _Driver(CloudDriver[Any]):
    """A driver whose calls read a field that the answer lacks."""

    kind = "thing"
    refusals = aws_errors.REFUSALS
    looks = 0

    def is_absent(self, error: Exception) -> bool:
        return aws_errors.is_absent(error)

    def verdict(self, error: Exception) -> ErrorVerdict:
        return aws_errors.verdict(error)

    def explain(self, error: Exception) -> CloudrecError:
        return aws_errors.explain(error)

    def search(self, cluster: str | None) -> Sequence[Observed]:
        raise AssertionError(ANSWER["identity"], cluster)

    def look(self, identity: str) -> tuple[Condition, str]:
        self.looks += 1
        return Condition.READY, ANSWER["state"] + identity

    def make(self, resource: Resource[Any], *, token: str, identities: Mapping[str, str]) -> str:
        raise AssertionError(ANSWER["identity"], resource, token, identities)

    def remove(self, observed: Observed) -> None:
        raise AssertionError(observed)


@pytest.mark.parametrize("answer", [{}, [], None, "x", {"rows": None}, {"rows": 7}])
def test_a_read_of_a_wrong_answer_is_repeated(answer: object) -> None:
    answers: list[Any] = [answer, {"rows": [{"name": "x"}]}]
    work = lambda: [row["name"] for row in answers.pop(0)["rows"]]  # noqa: E731 - as callers write it
    found = read(work, again=aws_errors.is_transient, speed=1000.0)
    assert found == ["x"]


def test_a_drivers_calls_are_lost_and_end_after_some_tries(tmp_path: Path) -> None:
    driver = _Driver()
    with pytest.raises(MisreadAnswerError, match="KeyError: 'identity'") as found:
        driver.search(None)
    assert aws_errors.verdict(found.value) is ErrorVerdict.LOST
    assert azure_errors.verdict(found.value, azure_errors.Grants(Clock())) is ErrorVerdict.LOST
    assert gcp_errors.verdict(found.value, gcp_errors.Fresh(Clock())) is ErrorVerdict.LOST
    assert found.value.exit_code == PreflightError.exit_code
    context = Context(journal=Journal(tmp_path / "journal.sqlite"), drivers={}, clock=Clock(speed=1000.0))
    with pytest.raises(MisreadAnswerError, match="KeyError: 'state'"):
        context.call(driver, lambda: driver.condition("thing", "x"))
    assert 1 < driver.looks < 10


def test_what_completes_a_resource_finds_it_first() -> None:
    with pytest.raises(UnfinishedError), _Driver()._unfinished(), answers_read():
        print(ANSWER["state"])


@pytest.mark.parametrize(
    "error",
    [SerializationError("the request"), UnknownEndpointError(service_name="x", region_name="y")],
)
def test_errors_of_an_sdk_keep_their_meaning(error: ValueError) -> None:
    with pytest.raises(type(error)), answers_read():
        raise error


def test_numbers_beyond_the_limits_are_a_wrong_answer() -> None:
    with pytest.raises(MisreadAnswerError), answers_read():
        safe_json(b'{"a": NaN}')

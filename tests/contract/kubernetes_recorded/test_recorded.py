"""The stand-in answers a recorded script of requests as a real API server did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cloudrec_sandbox.core.client import Control
from cloudrec_sandbox.kubernetes import serve
from cloudrec_sandbox.kubernetes.joined.connection import Connection
from tests.contract.kubernetes_recorded.replay import FILE, play

Row = dict[str, Any]


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def answers(recorded: dict[str, Any]) -> Iterator[list[Row]]:
    """What the stand-in answers to each step."""
    server = serve(0)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    told = server.announcement()
    connection = Connection(Path(told["env"]["KUBECONFIG"]))
    try:
        Control.of(told).order(nodes=[], processes=False)
        yield play(connection, recorded["steps"])
    finally:
        connection.close()
        server.shutdown()
        server.server_close()
        thread.join()


def differing(recorded: dict[str, Any], answers: list[Row], *names: str) -> dict[str, Any]:
    """The steps, by number and request, whose answers differ in these members: the real one and ours."""
    found = {}
    for number, (step, ours) in enumerate(zip(recorded["steps"], answers, strict=True)):
        real = step["answer"]
        if any(real.get(name) != ours.get(name) for name in names):
            asked = f"{number} {step['method']} {step['path']}"
            found[asked] = tuple({name: each.get(name) for name in names} for each in (real, ours))
    return found


def test_the_script_is_long_and_from_a_real_server(recorded: dict[str, Any]) -> None:
    assert recorded["version"].startswith("v1.")
    assert len(recorded["steps"]) >= 250


def test_every_verdict_is_that_of_the_real_server(recorded: dict[str, Any], answers: list[Row]) -> None:
    found = differing(recorded, answers, "status", "reason")
    assert set(found) == set(recorded["exceptions"]["verdicts"]), found


def test_fields_defaults_and_warnings_differ_only_where_it_is_known(
    recorded: dict[str, Any], answers: list[Row]
) -> None:
    found = differing(recorded, answers, "fields", "shown", "warnings")
    known = {*recorded["exceptions"]["contents"], *recorded["exceptions"]["verdicts"]}
    assert set(found) <= known, {name: found[name] for name in set(found) - known}
    assert len(recorded["exceptions"]["contents"]) < 30

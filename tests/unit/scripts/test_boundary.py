"""The lint finds ways around the boundary of foreign data."""

from __future__ import annotations

import pytest

from scripts.boundary import findings, main

READER = "cloudrec/launchers/base/results.py"


@pytest.mark.parametrize(
    ("path", "line", "advice"),
    [
        ("cloudrec/x.py", "body = response.json()", "safe_json"),
        ("cloudrec/x.py", "claim = Claim(**safe_object(text))", "record_of"),
        ("cloudrec/x.py", "folder = app.home.runs / name", "home.run(name)"),
        ("cloudrec/x.py", "folder = home.clusters / cluster.title / 'x'", "home.cluster(name)"),
        ("cloudrec/x.py", "path = home.locks / f'{name}.lock'", "home.lock(name)"),
        (READER, "path = folder / name", "safe_join"),
        (READER, "path = run.path / f'pods/{name}'", "safe_join"),
    ],
)
def test_a_way_around_is_found(path: str, line: str, advice: str) -> None:
    (found,) = findings(path, f"\n{line}\n")
    assert found.line == 2
    assert advice in found.advice


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("cloudrec/x.py", "body = request.json(indent=2)"),
        ("cloudrec/x.py", "path = folder / name"),
        ("cloudrec/x.py", "claim = record_of(Claim, safe_object(text))"),
        ("cloudrec/x.py", "path = home.costs / f'{check_part(name)}-{int(when)}.json'"),
        (READER, "path = folder / 'summary.json'"),
        (READER, "path = folder / FILE_NAME"),
        (READER, "path = safe_join(folder, name)"),
        (READER, "path = folder / name  # boundary: a digest"),
    ],
)
def test_a_safe_line_is_not_found(path: str, line: str) -> None:
    assert list(findings(path, line)) == []


def test_the_packages_have_none() -> None:
    assert main() == 0

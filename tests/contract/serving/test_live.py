"""A server's life: newer versions, damaged ones, bad requests, and its end."""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.serving.support_models import PLAIN, RICH, export_to, learn, make_rows
from tests.contract.serving.support_server import PATIENCE_S, Server, serving

ROW = make_rows(5, 1)[0]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two versions of a model, which learned from different rows."""
    folder = tmp_path_factory.mktemp("versions")
    found = [export_to(learn(folder / f"{seed}", PLAIN, seed), folder / f"package-{seed}") for seed in (1, 2)]
    return found[0], found[1]


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("rich")
    package = export_to(learn(folder, RICH), folder / "package")
    with serving(package, "--max-rows", "50", "--max-body-mb", "1") as server:
        yield server


def _wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)


def _refused(*words: str) -> tuple[int, str]:
    """The exit code and the messages of a server that does not start."""
    command = [sys.executable, "-P", "-m", "cloudrec", "serve", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_a_newer_version_takes_over_under_load_and_no_request_fails(
    packages: tuple[Path, Path], tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    shutil.copytree(packages[0], models / "day-9")
    stop, found = threading.Event(), list[tuple[int, str, str]]()
    rows = make_rows(3, 4)
    with serving(models, "--poll-seconds", "0.1", "--threads", "2") as server:

        def load() -> None:
            with server.client() as client:
                while not stop.is_set():
                    status, content, _ = client.post("/v1/score", {"rows": rows})
                    found.append((status, str(content.get("version")), json.dumps(content.get("scores"))))

        clients = [threading.Thread(target=load) for _ in range(4)]
        for each in clients:
            each.start()
        _wait(lambda: len(found) > 40)
        shutil.copytree(packages[1], tmp_path / "complete")
        (tmp_path / "complete").rename(models / "day-10")
        with server.client() as client:
            _wait(lambda: client.get("/v1/model").content["version"].startswith("day-10@"))
            seen = len(found)
            _wait(lambda: len(found) > seen + 40)
            metrics = client.get("/metrics").content
        stop.set()
        for each in clients:
            each.join()
    assert {status for status, _, _ in found} == {200}
    by_version = {
        version: {scores for _, each, scores in found if each == version} for _, version, _ in found
    }
    assert sorted(each.partition("@")[0] for each in by_version) == ["day-10", "day-9"]
    first, second = by_version.values()
    assert not first & second
    assert "cloudrec_model_replaced_total 1.0" in metrics
    assert 'cloudrec_requests_total{path="/v1/score",status="200"}' in metrics


def test_a_version_that_cannot_be_read_is_reported_and_the_old_one_stays(
    packages: tuple[Path, Path], tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    shutil.copytree(packages[0], models / "1")
    with serving(models / "1", "--poll-seconds", "0.1") as server, server.client() as client:
        before = client.scores([ROW])
        (models / "1" / "config.json").write_text("{")
        _wait(lambda: client.get("/v1/model").content["refused"] is not None)
        refused = client.get("/v1/model").content["refused"]
        assert "config.json: cannot be read" in refused["reason"]
        assert client.scores([ROW]) == before
        assert "cloudrec_model_refused 1.0" in client.get("/metrics").content
    assert "cannot be served" in server.log


def test_a_damaged_table_is_refused_at_the_start(packages: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(packages[1], tmp_path / "broken")
    table = next((tmp_path / "broken" / "tables").iterdir())
    table.write_bytes(table.read_bytes()[:-1] + b"!")
    code, text = _refused(str(tmp_path / "broken"))
    assert code == 1
    assert f"{table.name}: its sha256 is" in text


def test_a_half_copied_version_is_served_once_it_is_whole(
    packages: tuple[Path, Path], tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    shutil.copytree(packages[0], models / "1")
    with serving(models, "--poll-seconds", "0.1") as server, server.client() as client:
        (models / "2").mkdir()
        shutil.copy(packages[1] / "config.json", models / "2" / "config.json")
        _wait(lambda: client.get("/v1/model").content["refused"] is not None)
        assert client.get("/v1/model").content["version"].startswith("1@")
        shutil.copytree(packages[1], models / "2", dirs_exist_ok=True)
        _wait(lambda: client.get("/v1/model").content["version"].startswith("2@"))
        assert client.get("/v1/model").content["refused"] is None


def test_bad_rows_are_named_with_row_column_and_remedy(rich: Server) -> None:
    cases: list[tuple[dict[str, Any], str | None, str]] = [
        ({"price": "cheap"}, "price", "price is 'cheap'; it must be a number, or null"),
        ({"age": True}, "age", "it must be a number, or null"),
        ({"city": 1.5}, "city", "it must be a text or a whole number, or null"),
        ({"city": {"a": 1}}, "city", "it must be a text or a whole number, or null"),
        ({"tags": "t1"}, "tags", "it must be a list, each of it a text or a whole number, or null"),
        ({"tags": ["t1", ["t2"]]}, "tags", "tags holds ['t2']"),
        ({"tags": ["t1"], "tag_scores": [1.0, 2.0]}, "tags", "tags has 1 values and 2 weights"),
        ({"tag_scores": ["x"]}, "tag_scores", "tag_scores holds 'x'"),
        ({"words": 7}, "words", "or a text of them separated by '|'"),
    ]
    with rich.client() as client:
        for change, column, message in cases:
            rows = [ROW, ROW | change, ROW]
            status, content, _ = client.post("/v1/score", {"rows": rows})
            assert status == 422, (change, content)
            (problem,) = content["error"]["rows"]
            assert (problem["row"], problem["column"]) == (1, column)
            assert message in problem["message"]
            assert content["error"]["remedy"]
        absent = {key: value for key, value in ROW.items() if key != "device"}
        status, content, _ = client.post("/v1/score", {"rows": [absent | {"devise": "ios"}]})
        assert status == 422
        assert "no row has the column device; did you mean devise" in content["error"]["message"]
        # A value that a row alone lacks is missing, as in a file.
        assert client.scores([ROW, absent])[1] == client.scores([ROW | {"device": None}])[0]


def test_values_that_mean_the_same_get_the_same_scores(rich: Server) -> None:
    with rich.client() as client:
        expected = client.scores([ROW | {"path": [7, 8], "words": "w1|w2", "extra": None}])
        for change in (
            {"path": ["7", "8"], "words": ["w1", "w2"]},
            {"path": [7.0, 8], "words": "w1|w2", "extra": {"ignored": [1]}},
            {"path": [7, "8"], "words": "w1|w2", "clicked": "nonsense"},
        ):
            assert client.scores([ROW | change]) == pytest.approx(expected, abs=1e-7)


def test_limits_and_wrong_requests(rich: Server) -> None:
    with rich.client() as client:
        assert client.get("/healthz").content == "ok\n"
        assert client.get("/readyz").status == 200
        for body, status, text in (
            (b"", 400, "not JSON"),
            (b'{"rows": [', 400, "not JSON"),
            (b'{"rows": [{"price": NaN}]}', 400, "not finite"),
            (b"\xff\xfe", 400, "not JSON"),
            (b"[]", 422, "not an object"),
            (b"{}", 422, "rows is missing"),
            (b'{"rows": []}', 422, "rows is empty"),
            (b'{"rows": {}}', 422, "rows is a dict"),
            (b'{"rows": [1]}', 422, "row 0 is a int"),
            (b'{"rows": [{}], "top": 1}', 422, "the key 'top'"),
            (b'{"rows": [{}]}', 422, "no row has the column"),
            (json.dumps({"rows": [ROW] * 51}).encode(), 413, "51 rows; 50 is the limit"),
            (b" " * (1 << 20) + b"{}", 413, "longer than 1,048,576 bytes"),
        ):
            answer = client.ask("POST", "/v1/score", body)
            assert answer.status == status, (body[:40], answer)
            assert text in answer.content["error"]["message"]
            assert answer.content["error"]["remedy"]
        assert client.get("/v1/score").status == 405
        assert client.get("/nothing").status == 404
        assert client.scores([ROW])


def _odd(random_: random.Random, depth: int = 0) -> Any:
    kinds: list[Callable[[], Any]] = [
        lambda: None,
        lambda: random_.choice([True, False]),
        lambda: random_.randrange(-(10**20), 10**20),
        lambda: random_.choice([1e308, -1e308, 5e-324, 0.5, -0.0, 2**63, -(2**63), 2**53 + 1]),
        lambda: "".join(
            chr(random_.choice([0, 9, 10, 65, 124, 228, 0x1F600])) for _ in range(random_.randrange(9))
        ),
        lambda: "x" * random_.randrange(5000),
    ]
    if depth < 3:
        kinds.append(lambda: [_odd(random_, depth + 1) for _ in range(random_.randrange(5))])
        kinds.append(lambda: {str(each): _odd(random_, depth + 1) for each in range(random_.randrange(3))})
    return random_.choice(kinds)()


def test_no_body_makes_the_server_fail(rich: Server) -> None:
    random_ = random.Random(7)  # noqa: S311 - no secret
    good = json.dumps({"rows": [ROW] * 3}).encode()
    statuses = dict[int, int]()
    with rich.client() as client:
        for number in range(600):
            if number % 3 == 0:  # damaged bytes
                body = bytearray(good)
                for _ in range(random_.randrange(1, 6)):
                    body[random_.randrange(len(body))] = random_.randrange(256)
                if random_.random() < 0.3:
                    body = body[: random_.randrange(len(body))]
            elif number % 3 == 1:  # odd values in good rows
                rows = [dict(ROW) for _ in range(random_.randrange(1, 5))]
                for row in rows:
                    row[random_.choice(list(row))] = _odd(random_)
                body = bytearray(json.dumps({"rows": rows}).encode())
            else:  # anything
                body = bytearray(
                    json.dumps(random_.choice([_odd, lambda each: {"rows": _odd(each)}])(random_)).encode()
                )
            answer = client.ask("POST", "/v1/score", bytes(body))
            statuses[answer.status] = statuses.get(answer.status, 0) + 1
            assert answer.status in (200, 400, 413, 422), (bytes(body)[:300], answer)
            if answer.status == 200:
                assert all(0 <= each <= 1 for each in answer.content["scores"]), bytes(body)[:300]
            else:
                assert answer.content["error"]["message"]
        assert client.scores([ROW])
    assert min(statuses.get(each, 0) for each in (200, 400, 422)) > 20, statuses
    assert "Traceback" not in rich.log


def test_a_signal_ends_the_server_after_the_requests_that_run(packages: tuple[Path, Path]) -> None:
    rows = make_rows(3, 2000)
    with serving(packages[0], "--max-batch-ms", "400") as server, server.client() as client:
        body = json.dumps({"rows": rows[:1]}).encode()
        client.connection.request("POST", "/v1/score", body)
        time.sleep(0.15)  # the request waits for others
        assert server.end() == 0
        response = client.connection.getresponse()
        assert response.status == 200
        assert len(json.loads(response.read())["scores"]) == 1
        with pytest.raises(ConnectionError), socket.create_connection(("127.0.0.1", server.port), 1):
            pass


def test_what_cannot_be_served_is_refused_with_a_code(packages: tuple[Path, Path], tmp_path: Path) -> None:
    code, text = _refused(str(tmp_path / "none"))
    assert code == 2
    assert "no folder of a model" in text
    (tmp_path / "empty").mkdir()
    code, text = _refused(str(tmp_path / "empty"))
    assert code == 1
    assert "has no config.json" in text
    shutil.copytree(packages[0], tmp_path / "unknown")
    config = json.loads((tmp_path / "unknown" / "config.json").read_text())
    (tmp_path / "unknown" / "config.json").write_text(json.dumps(config | {"encoding": None}))
    code, text = _refused(str(tmp_path / "unknown"))
    assert code == 2
    assert "does not say how the data" in text
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, text = _refused(str(packages[0]), "--port", str(taken.getsockname()[1]))
    assert code == 1
    assert "cannot listen at 127.0.0.1" in text

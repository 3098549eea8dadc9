"""The live page over HTTP: who gets in, what it shows, and that foreign text stays text."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.contract.page.support_page import LivePage, a_run, live_page

FOREIGN = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    runs = home / "runs"
    a_run(runs, "one", trainer_config={"batch_size": 512})
    a_run(runs, "two", end="interrupted", hourly_usd=36.0, trainer_config={"batch_size": 1024})
    broken = a_run(runs, "broken")
    broken.spec_file.write_text('{"name": "' + FOREIGN)
    other = a_run(runs, "odd")
    other.summary_file.write_text(json.dumps({"status": FOREIGN, "tasks": {FOREIGN: {"auc": 0.5}}}))
    (runs / FOREIGN.replace("/", "|")).mkdir()
    return home


@pytest.fixture(scope="module")
def page(home: Path) -> Iterator[LivePage]:
    with live_page(home) as served:
        yield served


def test_the_link_gives_a_cookie_that_scripts_and_other_sites_do_not_get(page: LivePage) -> None:
    answer = page.get(f"/?q=one&{page.address.query}", cookie=None)
    assert (answer.status, answer.headers["location"]) == (303, "/?q=one")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"cookie": None}, 403),
        ({"cookie": "cloudrec-1=x"}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:80", "cookie": None}, 421),
        ({"host": "127.0.0.1"}, 421),
    ],
)
def test_no_one_else_gets_in(page: LivePage, headers: dict[str, Any], status: int) -> None:
    for path in ("/", "/runs/one", "/feed", "/runs/one/log", "/assets/x/page.js"):
        answer = page.get(path, **headers)
        assert answer.status == status
        assert "one" not in re.findall(r"runs/(\w+)", answer.text)


def test_a_wrong_token_gets_no_cookie(page: LivePage) -> None:
    answer = page.get("/?token=x", cookie=None)
    assert answer.status == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_another_site_stops_no_run(page: LivePage, headers: dict[str, Any]) -> None:
    form = re.search(r'name="form" value="([^"]+)"', page.get("/runs/one/stop").text)
    assert form is not None
    assert page.get("/runs/one/stop", method="POST", body=f"form={form[1]}", **headers).status == 403


@pytest.mark.parametrize("body", ["form=", "form=x", "other=1", "form=" + "x" * 5000])
def test_a_form_needs_its_token(page: LivePage, body: str) -> None:
    answer = page.get("/runs/one/stop", method="POST", body=body, origin=page.base)
    assert answer.status in (403, 413)


def test_it_listens_on_the_loopback_address_alone(page: LivePage) -> None:
    listening = [
        each.laddr for each in psutil.Process(page.process.pid).net_connections() if each.status == "LISTEN"
    ]
    assert [each.ip for each in listening] == ["127.0.0.1"]


@pytest.mark.parametrize("path", ["/", "/runs/one", "/compare?run=one&run=two", "/runs/one/stop"])
def test_a_page_may_load_only_its_own_files_and_runs_no_text(page: LivePage, path: str) -> None:
    answer = page.get(path)
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "access-control-allow-origin" not in answer.headers
    assert not re.search(r"\son\w+=|\sstyle=|<style", answer.text)
    for kind, attributes in re.findall(r"<(script|link|img)([^>]*)>", answer.text):
        assert 'type="application/json"' in attributes or "/assets/" in attributes, (kind, attributes)


def test_the_first_page_shows_every_run_and_hides_no_other_for_a_damaged_one(page: LivePage) -> None:
    text = page.get("/").text
    for name in ("one", "two", "odd", "broken"):
        assert f'href="/runs/{name}"' in text
    assert "spec.json is damaged" in text
    assert page.get("/runs/broken").status == 200


def test_a_cost_is_shown_and_an_unknown_one_is_called_unknown(page: LivePage) -> None:
    rows = dict(re.findall(r'<tr id="run-(\w+)">(.*?)</tr>', page.get("/").text, re.DOTALL))
    assert "unknown" in rows["one"]
    assert "$0.00" not in rows["one"]
    assert "$0.59" in rows["two"]  # 59 s at $36/h
    assert "AUC against cost" in page.get("/").text


def test_runs_are_found_by_name_and_state_and_sorted(page: LivePage) -> None:
    def names(path: str) -> list[str]:
        return re.findall(r'<tr id="run-(\w+)">', page.get(path).text)

    assert names("/?q=TW") == ["two"]
    assert names("/?state=INTERRUPTED") == ["two"]
    assert names("/?sort=cost")[0] == "two"
    assert names("/?q=nothing-like-it") == []
    assert page.get("/?page=99999999999999999999&sort=x&state=y").status == 200


def test_a_run_shows_its_curves_ranks_checkpoints_and_set_up(page: LivePage) -> None:
    text = page.get("/runs/one").text
    for words in (
        "Training loss",
        "AUC on held-out rows",
        "Where the time went",
        "rank 1",
        "What happened",
        "Checkpoints",
        "batch_size",
        "512",
        "Table of Training loss",
    ):
        assert words in text
    assert "AUC against cost" in page.get("/runs/two").text


def test_names_logs_and_summaries_are_text(page: LivePage) -> None:
    for path in ("/", "/runs/odd", "/runs/one", "/runs/broken", "/runs/odd/report"):
        text = page.get(path).text
        assert FOREIGN not in text
        assert "<script>alert(" not in text
        assert "<b>bold" not in text
    assert "&lt;script&gt;alert(1)" in page.get("/runs/odd").text
    name = FOREIGN.replace("/", "|")
    assert "&lt;script&gt;alert(1)&lt;|script&gt;" in page.get("/").text
    assert page.get(f"/runs/{name.replace('<', '%3C').replace('>', '%3E').replace('|', '%7C')}").status == 200


def test_lines_of_a_rank_come_without_control_characters(page: LivePage) -> None:
    text = page.events("/runs/one/log?rank=1", until="event: over")
    ((_, first), (_, second)) = json.loads(re.findall(r"^data: (\[.*)$", text, re.MULTILINE)[0])
    assert first == "<script>alert('log')</script> and <b>bold</b>"
    assert second == "red"


def test_lines_are_searched_in_the_whole_log(page: LivePage) -> None:
    text = page.events("/runs/one/log?rank=0&search=STEP+7+", until="event: over")
    assert re.findall(r"^data: (\[.*)$", text, re.MULTILINE) == ['[[7, "step 7 of 40"]]']


def test_runs_are_compared_with_what_differs(page: LivePage) -> None:
    text = page.get("/compare?run=one&run=two").text
    assert "2 runs compared" in text
    differences = text.partition("Settings that differ")[2]
    assert "batch_size" in differences
    assert "1024" in differences
    for path in ("/compare", "/compare?run=one", "/compare?run=one&run=gone"):
        assert page.get(path).status in (404, 409)


@pytest.mark.parametrize(
    "path", ["/runs/gone", "/runs/..%2F..%2Fetc", "/nothing", "/assets/x/page.css", "/runs/one/log?rank=9"]
)
def test_what_is_not_there_is_refused_without_a_trace(page: LivePage, path: str) -> None:
    answer = page.get(path)
    assert answer.status in (404, 409)
    assert "Traceback" not in answer.text


def test_a_run_that_is_over_is_not_stopped(page: LivePage) -> None:
    form = re.search(r'name="form" value="([^"]+)"', page.get("/runs/one/stop").text)
    assert form is not None
    answer = page.get("/runs/one/stop", method="POST", body=f"form={form[1]}", origin=page.base)
    assert (answer.status, answer.headers["location"]) == (303, "/runs/one")
    end = time.monotonic() + 10
    while "Stopping failed" not in (text := page.get("/runs/one").text):
        assert time.monotonic() < end
    assert "is not running: it is SUCCEEDED" in text


def test_a_page_gets_a_sign_of_a_change(page: LivePage, home: Path) -> None:
    run = a_run(home / "runs", "moving")
    page.get("/runs/moving")
    found: list[str] = []

    reading = threading.Thread(
        target=lambda: found.append(page.events("/feed?run=moving", until="event: changed"))
    )
    reading.start()
    time.sleep(1.5)
    with run.metrics_file.open("a") as file:
        file.write(json.dumps({"kind": "train", "step": 41, "loss": 0.1}) + "\n")
    reading.join(20)
    assert found


def test_a_page_and_its_files_are_small(page: LivePage) -> None:
    text = page.get("/runs/one").text
    files = [page.get(path).text for path in sorted(set(re.findall(r'"(/assets/[^"]+)"', text)))]
    assert len(files) == 4
    assert sum(len(each.encode()) for each in (text, *files)) < 300_000

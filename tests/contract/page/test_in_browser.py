"""The pages in a real browser: what moves, what a key does, what is read aloud, and what fits a phone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from cloudrec.cli.main import run
from cloudrec.launchers import launcher
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.observe.page.report import write_report
from scripts.chromium import ChromiumUnavailableError, chromium
from tests.contract.page.support_page import LivePage, a_run, live_page

WIDE, NARROW = 1280, 390
FAKE = Path(__file__).parents[2] / "e2e" / "fake_trainer.py"
FOREIGN = "<img src=x onerror=alert(1)>"
PAGES = ("/", "/runs/one", "/runs/two", "/runs/broken", "/compare?run=one&run=two", "/runs/one/stop", "/none")
GRAVE = ("serious", "critical")
"""The impacts of axe's findings that no page may have."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        path = chromium()
    except ChromiumUnavailableError as error:
        pytest.skip(str(error))
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    runs = home / "runs"
    a_run(runs, "one", trainer_config={"batch_size": 512, FOREIGN: FOREIGN})
    a_run(runs, "two", end="interrupted", hourly_usd=36.0)
    a_run(runs, "broken").spec_file.write_text("{")
    plan = {"world_size": 2, "tables": {}}
    for table, rank in (("C1", 0), ("C2", 1), (FOREIGN, 1)):
        shards = [{"rows": [0, 500], "columns": [0, 64], "rank": rank}]
        row = {"rows": 500, "columns": 64, "sharding_type": "table_wise", "compute_kernel": "fused"}
        plan["tables"][table] = {**row, "ranks": [rank], "shards": shards}  # type: ignore[index]
    (runs / "one" / "sharding_plan.json").write_text(json.dumps(plan))
    return home


@pytest.fixture(scope="module")
def served(home: Path) -> Iterator[LivePage]:
    with live_page(home) as page:
        yield page


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, served: LivePage) -> Iterator[Open]:
    contexts = []
    said: list[str] = []

    def opened(path: str = "/", *, width: int = WIDE, server: LivePage | None = None, **options: Any) -> Page:
        at = server or served
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
        page.on("console", lambda message: said.append(message.text) if "Policy" in message.text else None)
        page.goto(at.link)
        page.goto(f"{at.base}{path}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert said == []  # no script failed, none came from a run, and nothing broke the policy


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_page_has_a_grave_finding_or_scrolls_sideways(open_page: Open, width: int, scheme: str) -> None:
    page = open_page(width=width, color_scheme=scheme)
    base = page.url.rstrip("/")
    for path in PAGES:
        page.goto(f"{base}{path}")
        page.wait_for_timeout(300)
        for part in page.locator("details").all():
            part.evaluate("part => part.open = true")
        found = [
            (each["id"], each["impact"], each["nodes"][0]["html"])
            for each in Axe().run(page).response["violations"]
            if each["impact"] in GRAVE
        ]
        assert found == [], path
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_report_has_none_either(
    browser: Browser, home: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    file = write_report(RunFolder(path=home / "runs" / "one"), tmp_path / "one.html", cost_usd=1.5)
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type] # its values
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(file.as_uri())
    page.wait_for_timeout(300)
    found = [each["id"] for each in Axe().run(page).response["violations"] if each["impact"] in GRAVE]
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert page.locator(".tip").count() == page.locator("figure.chart").count() > 3  # the script draws
    context.close()
    assert (found, overflow, said) == ([], 0, [])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_picture_of_a_plan_has_none_either(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, scheme: str
) -> None:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path / "home"))
    file = tmp_path / "plan.html"
    assert run(["plan", "--samples", "4000000", "--html", str(file), "--", "--num_embeddings", "9000"]) == 0
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type] # its values
        bypass_csp=True,  # axe is a script, and the page allows none
    )
    page = context.new_page()
    page.goto(file.as_uri())
    found = [each["id"] for each in Axe().run(page).response["violations"] if each["impact"] in GRAVE]
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert page.locator("circle").count() == page.locator("tbody tr").count() > 30
    context.close()
    assert (found, overflow) == ([], 0)


def test_pages_are_complete_without_a_script(open_page: Open) -> None:
    page = open_page("/runs/one", java_script_enabled=False)
    assert page.locator("figure.chart svg path").count() >= 5
    page.locator("#chart-loss summary").click()
    expect(page.locator("#chart-loss table tbody tr").first).to_be_visible()
    page.goto(page.url.replace("/runs/one", "/"))
    page.get_by_role("link", name="two", exact=True).click()
    page.get_by_role("link", name="Resume…").click()


def test_a_curve_shows_the_value_under_the_pointer_on_every_chart(open_page: Open) -> None:
    page = open_page("/runs/one")
    handle = page.locator("#chart-loss .handle")
    box = handle.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
    expect(page.locator("#chart-loss .tip")).to_contain_text(re.compile("step (1|2)[0-9]"))  # of 40

    expect(page.locator("#chart-throughput .tip")).to_contain_text("10k")


def test_dragging_zooms_every_chart_and_a_button_shows_all_again(open_page: Open) -> None:
    page = open_page("/runs/one")
    ticks = page.locator("#chart-throughput .plot svg text")
    before = ticks.all_text_contents()
    handle = page.locator("#chart-loss .handle")
    box = handle.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 120, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 50, steps=5)
    page.mouse.up()
    assert ticks.all_text_contents() != before
    page.get_by_role("button", name="Show all").click()
    assert ticks.all_text_contents() == before


def test_a_curve_is_read_and_zoomed_by_keys(open_page: Open) -> None:
    page = open_page("/runs/one")
    slider = page.get_by_role("slider", name="Training loss")
    slider.focus()
    page.keyboard.press("Home")
    assert slider.get_attribute("aria-valuetext") == "step 1, 0.7"
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "step 2, 0.35"
    page.keyboard.press("+")
    expect(page.get_by_role("button", name="Show all")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Show all")).to_be_hidden()


def test_smoothing_keeps_the_raw_curve_and_is_remembered(open_page: Open) -> None:
    page = open_page("/runs/one")
    smoothing = page.get_by_label("Smoothing")
    assert page.locator("#chart-loss .raw").count() == 0
    smoothing.fill("0.9")
    assert page.locator("#chart-loss .raw").count() == 1
    page.reload()
    assert page.locator("#chart-loss .raw").count() == 1
    page.get_by_label("Across").select_option("Time")
    expect(page.locator("#chart-loss .plot svg")).to_contain_text("s")


def test_the_theme_is_chosen_and_kept(open_page: Open) -> None:
    page = open_page("/", color_scheme="light")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.get_by_role("button", name="Theme: auto").click()
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(colour) != light
    page.reload()
    assert page.evaluate(colour) != light


def test_everything_is_reached_by_the_tab_key(open_page: Open) -> None:
    page = open_page("/runs/two")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
    assert {"Report", "Resume…", "Curves", "smooth", "axis", "log-rank", "log-search"} <= seen


def test_logs_are_searched_and_their_markup_is_text(open_page: Open) -> None:
    page = open_page("/runs/one")
    lines = page.locator("#log-lines")
    expect(lines).to_contain_text("step 40 of 40")
    page.get_by_label("Search the log").fill("STEP 7 ")
    expect(lines.locator(".row")).to_have_count(1)
    expect(lines.locator("mark")).to_have_text("step 7 ")
    page.get_by_label("Search the log").fill("")
    page.get_by_label("Rank", exact=True).select_option("1")
    expect(lines).to_contain_text("<script>alert('log')</script> and <b>bold</b>")
    assert lines.locator("b, script").count() == 0


def test_runs_are_chosen_and_compared(open_page: Open) -> None:
    page = open_page()
    button = page.get_by_role("button", name="Compare the chosen runs")
    expect(button).to_be_disabled()
    page.get_by_label("Compare one").check()
    page.get_by_label("Compare two").check()
    button.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("2 runs compared")
    assert page.locator("#chart-loss .line").count() == 2


def _begin(home: Path, *, steps: int = 4000) -> RunFolder:
    """Start a run of the fake trainer on this machine, as `cloudrec train` does."""
    spec = RunSpec(
        name="alive",
        nproc_per_node=1,
        trainer_command=(sys.executable, str(FAKE)),
        trainer_config={"steps": steps, "step_s": 0.05},
        stop_grace_s=20,
    )
    run = create_run(home / "runs", spec)
    launcher("local").submit(run)
    return run


def test_a_live_run_moves_and_is_stopped_from_the_page(open_page: Open, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    run = _begin(tmp_path)
    try:
        with live_page(tmp_path) as served:
            page = open_page("/runs/alive", server=served)
            expect(page.locator("h1 + .pill")).to_have_text("RUNNING")
            step = page.locator(".figures div", has=page.get_by_text("Step", exact=True)).locator("dd").first
            expect(step).not_to_have_text("0", timeout=20_000)
            before = int(step.inner_text().replace(",", ""))
            end = time.monotonic() + 30
            while int(step.inner_text().replace(",", "")) < before + 20:  # without a reload
                assert time.monotonic() < end
                page.wait_for_timeout(200)
            expect(page.locator("#chart-loss .line")).to_have_count(1)
            expect(page.locator("#log-lines")).to_contain_text("rank 0 step")
            page.get_by_role("link", name="Stop…").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Stop alive?")
            page.get_by_role("button", name="Stop the run").click()
            expect(page.locator("h1 + .pill")).to_have_text("INTERRUPTED", timeout=40_000)
            expect(page.get_by_role("link", name="Resume…")).to_be_visible(timeout=10_000)
            assert run.ledger.read()[-1].event == "interrupted"
    finally:
        if not launcher("local").state(run).state.is_final:
            launcher("local").stop(run, grace_s=1)


def test_a_stopped_run_is_resumed_from_the_page(open_page: Open, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    up = [sys.executable, "-P", "-m", "cloudrec", "up", "local", "--yes"]
    subprocess.run(up, env={**os.environ, "CLOUDREC_HOME": str(tmp_path)}, check=True, capture_output=True)
    run = _begin(tmp_path, steps=120)
    engine = launcher("local")
    try:
        with live_page(tmp_path) as served:
            page = open_page("/runs/alive", server=served)
            expect(page.locator("#log-lines")).to_contain_text("rank 0 step", timeout=20_000)
            engine.stop(run, grace_s=20)
            expect(page.locator("h1 + .pill")).to_have_text("INTERRUPTED", timeout=20_000)
            page.get_by_role("link", name="Resume…").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Resume alive?")
            expect(page.locator(".question")).to_contain_text("the checkpoint of step")
            page.get_by_role("link", name="Leave it as it is").click()  # no is no
            expect(page.locator("h1 + .pill")).to_have_text("INTERRUPTED")
            assert max(event.launch for event in run.ledger.read()) == 1
            page.get_by_role("link", name="Resume…").click()
            page.get_by_role("button", name="Resume the run").click()
            expect(page.locator("h1 + .pill")).to_have_text("RUNNING", timeout=20_000)
            expect(page.locator("h1 + .pill")).to_have_text("SUCCEEDED", timeout=40_000)
            events = [event.event for event in run.ledger.read() if event.launch == 2]
            assert events[0] == "submitted"
            assert events[-1] == "succeeded"
            assert "rank 0 begins at step" in run.rank_log(0).read_text()
    finally:
        if not engine.state(run).state.is_final:
            engine.stop(run, grace_s=1)


def test_what_the_user_does_survives_a_change(open_page: Open, home: Path) -> None:
    run = a_run(home / "runs", "renewed")
    page = open_page("/runs/renewed")
    page.locator("#chart-loss summary").click()
    page.get_by_label("Search the log").fill("step 3")
    with run.metrics_file.open("a") as file:
        file.write(json.dumps({"kind": "train", "step": 777, "loss": 0.1, "time": time.time()}) + "\n")
    expect(page.locator("#chart-loss .legend")).to_contain_text("0.1", timeout=10_000)
    expect(page.locator("#chart-loss details")).to_have_attribute("open", "")
    expect(page.get_by_label("Search the log")).to_have_value("step 3")
    assert page.evaluate("document.activeElement.id") == "log-search"


def test_a_page_of_a_thousand_runs_has_fifty_and_is_light(open_page: Open, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    first = a_run(home / "runs", "run-0000", steps=1000)
    spec, files = first.spec_file.read_text(), ("events.jsonl", "metrics.jsonl")
    for name in (f"run-{number:04}" for number in range(1, 1000)):
        run = RunFolder(path=first.path.parent / name)
        run.path.mkdir()
        run.spec_file.write_text(spec.replace("run-0000", name))
        for file in files:
            (run.path / file).write_bytes((first.path / file).read_bytes())
    with live_page(home) as served:
        page = open_page("/none", server=served)
        page.goto(f"{served.base}/?q=")
        bodies = "performance.getEntries().reduce((sum, each) => sum + (each.encodedBodySize || 0), 0)"
        assert page.evaluate(bodies) <= 300_000
        assert page.locator("tr[id^=run-]").count() == 50
        expect(page.get_by_text("page 1 of 20")).to_be_visible()

"""`python -m scripts.screenshots [FOLDER]`: pictures of `cloudrec ui` and of the report, from real runs.

Two runs are trained on this machine, one of them stopped and resumed, through the commands that a user types.
The pictures of docs/ui.md are written to docs/pictures, or to FOLDER: the pages at 1280 and 390 pixels.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image
from playwright.sync_api import sync_playwright

from scripts.chromium import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
WIDE, NARROW = 1280, 390
LARGEST = 150_000  # bytes of a picture
_HIGH = 860
_FAST = ("--checkpoint_interval", "100", "--eval_interval", "50", "--log_interval", "5")
_RUNS = {
    "baseline": ("--num_epochs", "2"),
    "small-batches": ("--num_epochs", "1", "--batch_size", "512"),
    "slow-learner": ("--num_epochs", "1", "--learning_rate", "0.01"),
}


class Picture(NamedTuple):
    """A page, how wide it is seen, and how much of its height."""

    name: str
    path: str
    width: int
    scheme: str
    high: int = _HIGH
    scroll: str = ""


PICTURES = (
    Picture("ui-home", "/", WIDE, "light", 980),
    Picture("ui-run", "/runs/baseline", WIDE, "light", 1180),
    Picture("ui-run-dark", "/runs/small-batches", WIDE, "dark", 1180),
    Picture("ui-logs", "/runs/baseline", WIDE, "light", 760, "#ranks"),
    Picture("ui-compare", "/compare?run=baseline&run=small-batches&run=slow-learner", WIDE, "light", 1100),
    Picture("ui-home-phone", "/", NARROW, "light"),
    Picture("ui-run-phone", "/runs/baseline", NARROW, "dark"),
)


def main() -> int:
    """Train, take the pictures and remove everything."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cloudrec-pictures-") as place:
        shell = _Shell(Path(place))
        shell.make_runs()
        with shell.page() as link, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            for picture in PICTURES:
                take(browser, link, picture, folder / f"{picture.name}.png")
            shell.run("report", "baseline", "--out", "report.html")
            report = Picture("report", (Path(place) / "report.html").as_uri(), WIDE, "light", 1180)
            take(browser, link, report, folder / "report.png")
            browser.close()
    large = [path.name for path in sorted(folder.glob("*.png")) if path.stat().st_size > LARGEST]
    if large:
        print(f"error: larger than {LARGEST:,} bytes: {', '.join(large)}", file=sys.stderr)
    return 1 if large else 0


def take(browser: Browser, link: str, picture: Picture, path: Path) -> None:
    """Open a page as a user would, and keep what is seen of it."""
    size = {"width": picture.width, "height": picture.high}
    scheme = "dark" if picture.scheme == "dark" else "light"
    context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type] # its keys
    page = context.new_page()
    page.goto(link)
    base = link.partition("/?")[0]
    page.goto(picture.path if "://" in picture.path else f"{base}{picture.path}")
    page.wait_for_timeout(1200)
    if picture.scroll:
        page.evaluate("where => document.querySelector(where).scrollIntoView()", picture.scroll)
    seen = page.screenshot()
    context.close()
    # 256 colours show it as well, in a third of the bytes.
    Image.open(io.BytesIO(seen)).convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE).save(
        path, optimize=True
    )
    print(f"{path}: {path.stat().st_size:,} bytes")


class _Shell:
    """Runs cloudrec's commands in a separate folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._command = [sys.executable, "-P", "-m", "cloudrec"]
        self._environment = {**os.environ, "CLOUDREC_HOME": str(folder / "home"), "PYTHONUNBUFFERED": "1"}

    def run(self, *words: str) -> None:
        """Run a command; its output is shown if it fails."""
        subprocess.run([*self._command, *words], cwd=self._folder, env=self._environment, check=True)

    def make_runs(self) -> None:
        """Train a few small models on made-up data."""
        self.run("up", "local", "--yes")
        self.run("data", "synth", "raw", "--rows", "200000")
        self.run("data", "prepare", "raw", "prepared")
        for name, flags in _RUNS.items():
            words = ("--dataset", "prepared", "--name", name, "--nproc-per-node", "2", "--yes")
            self.run("train", *words, "--", *flags, *_FAST)

    @contextlib.contextmanager
    def page(self) -> Iterator[str]:
        """Serve the page; yield its link."""
        process = subprocess.Popen(
            [*self._command, "ui", "--no-browser", "--port", "0"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            if process.stdout is None:
                raise RuntimeError("the page has no output")
            link = process.stdout.readline().strip()
            time.sleep(1)
            yield link
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


if __name__ == "__main__":
    sys.exit(main())

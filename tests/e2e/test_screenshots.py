"""`python -m scripts.screenshots` makes pictures that show something, of the sizes of the committed ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from scripts.chromium import ChromiumUnavailableError, chromium
from scripts.screenshots import LARGEST, PICTURES

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "pictures"
NAMES = [*(picture.name for picture in PICTURES), "report"]
_FEWEST = 16  # colours of a page with text, charts and borders; a blank one has one
_MOST_OF_ONE = 0.97  # the largest share that its background may have


def _shown(path: Path) -> tuple[tuple[int, int], int, float]:
    """The size, the number of colours, and the share of the most frequent one."""
    with Image.open(path) as picture:
        colours = picture.convert("RGB").getcolors(1 << 24) or []
        pixels = picture.width * picture.height
        return picture.size, len(colours), max(count for count, _ in colours) / pixels


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_picture_shows_a_page(name: str) -> None:
    _, colours, share = _shown(KEPT / f"{name}.png")
    assert colours >= _FEWEST
    assert share < _MOST_OF_ONE
    assert (KEPT / f"{name}.png").stat().st_size <= LARGEST


def test_a_blank_picture_would_be_seen(tmp_path: Path) -> None:
    Image.new("RGB", (1280, 860), "white").save(tmp_path / "blank.png")
    assert _shown(tmp_path / "blank.png") == ((1280, 860), 1, 1.0)


@pytest.mark.slow
def test_new_pictures_have_the_sizes_of_the_committed_ones(tmp_path: Path) -> None:
    try:
        chromium()
    except ChromiumUnavailableError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "scripts.screenshots", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.stem for path in tmp_path.glob("*.png")} == set(NAMES)
    for name in NAMES:
        size, colours, share = _shown(tmp_path / f"{name}.png")
        assert size == _shown(KEPT / f"{name}.png")[0], name
        assert colours >= _FEWEST, name
        assert share < _MOST_OF_ONE, name

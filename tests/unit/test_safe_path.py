"""An external name never becomes a path outside its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cloudrec.home import Home
from cloudrec.safe_path import UnsafeNameError, check_name, check_part, safe_join

HOSTILE = [
    "",
    ".",
    "..",
    "/etc/passwd",
    "//etc/passwd",
    "../x",
    "a/../../x",
    "a/..",
    "a/./b",
    "./a",
    "a//b",
    "a/",
    "..\\x",
    "C:\\x",
    "a\0b",
    "a\nb",
    "a\x1b[2Jb",
    "a\x7fb",
    "a\x9bb",
    "a\u202eb",
    "a\udc80b",
    "x" * 201,
    "\u00e9" * 101,
    "/".join("x" * 100 for _ in range(11)),
]
PARTS = st.sampled_from(["..", ".", "", "a", "link", "inner", "file", "\0", "\\", "..."]) | st.text(
    max_size=3
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_could_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeNameError, match="the name"):
        check_name(name)
    with pytest.raises(UnsafeNameError, match="the name"):
        safe_join(tmp_path, name)


@pytest.mark.parametrize(
    "name", ["a", "a/b.c", "...", "..a/b..", ".hidden", "a b", "\u00e9/\u6771", "-x", "~/x", "x" * 200]
)
def test_a_plain_name_is_below_the_folder(tmp_path: Path, name: str) -> None:
    assert safe_join(tmp_path, name) == tmp_path / name


def test_a_link_inside_the_folder_is_followed_and_a_link_out_of_it_is_refused(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    (folder / "real").mkdir(parents=True)
    outside.mkdir()
    (folder / "inner").symlink_to("real")
    (folder / "outer").symlink_to(outside)
    (folder / "file").symlink_to(outside / "not-there-yet")
    (folder / "loop").symlink_to("loop")
    assert safe_join(folder, "inner/x") == folder / "inner" / "x"
    for name in ("outer", "outer/x", "outer/x/y", "file", "loop", "loop/x"):
        with pytest.raises(UnsafeNameError):
            safe_join(folder, name)


def test_the_folder_itself_can_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to("real")
    assert safe_join(tmp_path / "home", "a") == tmp_path / "home" / "a"


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to inside and to outside of it."""
    folder = tmp_path_factory.mktemp("linked") / "folder"
    (folder / "a").mkdir(parents=True)
    (folder / "link").symlink_to(folder.parent)
    (folder / "a" / "link").symlink_to("/")
    (folder / "inner").symlink_to("a")
    return folder


@given(parts=st.lists(PARTS, max_size=6))
@example(parts=["inner", "link", "etc"])
@example(parts=["a", "..", "..", "x"])
def test_any_name_gives_a_path_inside_the_folder_or_is_refused(linked: Path, parts: list[str]) -> None:
    try:
        path = safe_join(linked, "/".join(parts))
    except UnsafeNameError:
        return
    assert path.resolve().is_relative_to(linked.resolve())
    assert path.resolve() != linked.resolve()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "/etc", "a\\b", "a\nb", "x" * 300])
def test_a_folder_of_the_home_has_a_plain_name(tmp_path: Path, name: str) -> None:
    home = Home(root=tmp_path)
    for of in (home.run, home.cluster, home.cluster_lock, check_part):
        with pytest.raises(UnsafeNameError):
            of(name)
    assert home.run("first") == tmp_path / "runs" / "first"

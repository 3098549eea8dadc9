"""What is packed of a working folder, and what is refused."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from cloudrec.errors import DataError, UsageError
from cloudrec.launchers.base.script import pack as packing
from cloudrec.launchers.base.script.pack import pack


def _fill(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def _names(data: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return archive.getnames()


def test_both_ignore_files_apply_in_every_folder_and_the_later_rule_counts(tmp_path: Path) -> None:
    work = _fill(
        tmp_path,
        {
            "train.py": "",
            "lib/model.py": "",
            "lib/.gitignore": "/scratch.py\n",
            "lib/scratch.py": "",
            "scratch.py": "",
            ".gitignore": "*.csv\n/out/\n",
            ".cloudrecignore": "!small.csv\nnotes.md\n",
            "big.csv": "",
            "small.csv": "",
            "notes.md": "",
            "out/model.pt": "",
            "sub/out/kept.txt": "",
        },
    )
    assert _names(pack(work).data) == [
        *(".cloudrecignore", ".gitignore", "lib/.gitignore", "lib/model.py", "scratch.py", "small.csv"),
        *("sub/out/kept.txt", "train.py"),
    ]


def test_the_repositorys_ignore_file_applies_to_a_folder_in_it(tmp_path: Path) -> None:
    _fill(tmp_path, {".git/HEAD": "", ".gitignore": "*.bin\n", "job/train.py": "", "job/x.bin": ""})
    _fill(tmp_path.parent, {".gitignore": "*.py\n"})  # above the repository
    assert _names(pack(tmp_path / "job").data) == ["train.py"]


@pytest.mark.parametrize(
    "name",
    [".env", ".env.local", "sub/.env", ".git/config", "x/__pycache__/a.pyc", ".aws/credentials", "id_rsa"],
)
def test_secrets_and_what_a_node_has_no_use_for_are_left_out(tmp_path: Path, name: str) -> None:
    assert _names(pack(_fill(tmp_path, {"train.py": "", name: "x"})).data) == ["train.py"]


def test_a_virtual_environment_of_any_name_and_a_given_file_are_left_out(tmp_path: Path) -> None:
    work = _fill(tmp_path, {"train.py": "", "myenv/pyvenv.cfg": "", "myenv/bin/x": "", "vars": "A=1"})
    assert _names(pack(work, without=[work / "vars"]).data) == ["train.py"]


def test_a_folder_that_is_left_out_is_not_even_read(tmp_path: Path) -> None:
    work = _fill(tmp_path, {"train.py": "", "home/runs/log": "of another run"})
    (work / "home" / "leads-out").symlink_to("/etc/passwd")
    assert _names(pack(work, without=[work / "home"]).data) == ["train.py"]


def test_equal_files_give_equal_digests_whatever_their_times_and_owners(tmp_path: Path) -> None:
    one, two = _fill(tmp_path / "one", {"a.py": "1", "b/c": "2"}), tmp_path / "two"
    _fill(two, {"b/c": "2", "a.py": "1"})
    os.utime(two / "a.py", (0, 0))
    assert pack(one).data == pack(two).data
    (two / "a.py").chmod(0o755)
    assert pack(one).digest != pack(two).digest


def test_a_link_inside_of_the_folder_is_packed_and_one_out_of_it_refused(tmp_path: Path) -> None:
    work = _fill(tmp_path / "work", {"train.py": "", "data/x": "1"})
    (work / "link").symlink_to(work / "data")
    with tarfile.open(fileobj=io.BytesIO(pack(work).data)) as archive:
        assert archive.getmember("link").linkname == "data"
    (work / "data" / "out").symlink_to(tmp_path)
    with pytest.raises(DataError, match="not in the folder"):
        pack(work)


def test_too_many_bytes_are_refused_with_the_largest_files(tmp_path: Path) -> None:
    work = _fill(tmp_path, {"train.py": "", "small.bin": "1"})
    with (work / "big.bin").open("wb") as file:
        file.truncate(packing.MOST_BYTES)  # sparse
    with pytest.raises(
        UsageError, match=r"200\.0 MB to send; the limit is 200 MB.*big\.bin \(200\.0 MB\)"
    ) as error:
        pack(work)
    assert ".cloudrecignore" in str(error.value.remedy)


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}").touch()
    with pytest.raises(UsageError, match="more than 3 files"):
        pack(tmp_path, most_files=3)


def test_what_is_no_folder_and_a_file_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        pack(tmp_path / "absent")
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"cannot read .*\.gitignore"):
        pack(tmp_path)

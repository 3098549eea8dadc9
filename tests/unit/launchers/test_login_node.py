"""The launchers' errors about a login node: class, exit code and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec.errors import CloudrecError, DataError, PreflightError, StorageError
from cloudrec.launchers.base import results_store
from cloudrec.launchers.base.results_store import Place, open_place
from cloudrec.launchers.base.ssh.shell import ShellUnreachableError, SshShell
from cloudrec_contract.objectstore.retries import Patience
from tests.standins import login_node
from tests.standins.login_node import HOST, LoginNode

NETWORK = "check the name, the network and the VPN; `ssh -v` shows more"
KEY = f"make `ssh -o BatchMode=yes {HOST} true` work: add your key to ssh-agent, or renew it"
BY_HAND = f"log in once by hand (`ssh {HOST}`) and compare the key that it shows"
REFUSALS = [
    (
        "ssh: connect to host login: Connection refused",
        ShellUnreachableError,
        "cannot be reached",
        NETWORK,
    ),
    ("", ShellUnreachableError, "cannot be reached", NETWORK),
    ("me@login: Permission denied (publickey).", PreflightError, "refuses us", KEY),
    ("Host key verification failed.", PreflightError, "refuses us", BY_HAND),
    ("WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!", PreflightError, "refuses us", BY_HAND),
]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoginNode:
    monkeypatch.setattr(results_store, "_PATIENCE", Patience(attempts=2, rounds=1))
    return login_node.install(tmp_path / "ssh", monkeypatch)


@pytest.fixture
def place(node: LoginNode, tmp_path: Path) -> Place:
    return open_place(node.uri(tmp_path / "runs" / "r"))


def parts_of(error: CloudrecError) -> tuple[type[CloudrecError], int, str, str | None]:
    return type(error), error.exit_code, error.message, error.remedy


@pytest.mark.parametrize("refusal", REFUSALS)
def test_the_shell_and_the_files_report_the_same_login_node_errors(
    node: LoginNode, place: Place, refusal: tuple[str, type[CloudrecError], str, str]
) -> None:
    words, kind, how, remedy = refusal
    expected = (kind, 3, f"the login node {HOST} {how}: {words or 'ssh gives no reason'}", remedy)
    node.fail("refuse", words)
    with pytest.raises(CloudrecError) as caught:
        SshShell(host=HOST).run(["true"])
    assert parts_of(caught.value) == expected
    node.fail("refuse", words, times=2)
    with pytest.raises(CloudrecError) as caught:
        place.read("a")
    assert parts_of(caught.value) == expected


def test_a_program_that_does_not_end_is_reported(node: LoginNode) -> None:
    node.fail("hang")
    with pytest.raises(ShellUnreachableError) as caught:
        SshShell(host=HOST).run(["squeue"], timeout_s=0.5)
    assert parts_of(caught.value)[1:] == (3, f"squeue on {HOST} did not answer within 0.5 s", None)


def test_a_program_that_fails_is_no_error_of_the_shell(node: LoginNode) -> None:
    done = SshShell(host=HOST, config="/config").run(["sh", "-c", "cat; echo no >&2; exit 3"], given=b"a'b")
    assert (done.code, done.text, done.err) == (3, "a'b", "no")
    assert " -F /config " in node.calls()[0]


def test_a_machine_without_ssh_is_reported(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for call in (lambda: SshShell(host=HOST).run(["true"]), lambda: place.read("a")):
        with pytest.raises(PreflightError) as caught:
            call()
        assert parts_of(caught.value)[1:] == (3, f"ssh is not installed, and {HOST} is reached by it", None)


def test_a_folder_of_sockets_that_others_may_write_to_is_refused(
    node: LoginNode, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    SshShell(host=HOST).run(["true"])
    (sockets,) = tmp_path.glob("cloudrec-ssh-*")
    sockets.chmod(0o777)
    for call in (lambda: SshShell(host=HOST).run(["true"]), lambda: place.read("a")):
        with pytest.raises(StorageError, match="others may write to it") as caught:
            call()
        assert parts_of(caught.value)[1:] == (
            1,
            f"{sockets} belongs to another user, or others may write to it",
            "remove it, or set TMPDIR",
        )
    assert len(node.calls()) == 1


def test_files_of_a_login_node_are_read_and_written_by_name(place: Place, tmp_path: Path) -> None:
    assert place.read("a") is None
    assert place.create("leaders/1", b"mine")
    assert not place.create("leaders/1", b"yours")
    place.write("pods/p/log", b"0123456789")
    assert place.read("pods/p/log", start=3, limit=4) == b"3456"
    assert place.sizes("pods/") == {"pods/p/log": 10}
    assert place.children("") == {"leaders": -1, "pods": -1}
    place.fetch("pods/p/log", tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b"0123456789"
    with pytest.raises(FileNotFoundError):
        place.fetch("pods/p/none", tmp_path / "none")
    place.remove("pods/p/log")
    assert place.read("pods/p/log") is None


def test_a_refusal_of_its_file_system_is_reported(place: Place, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file in place of a folder")
    with pytest.raises(StorageError, match=r"^ssh://.*/runs/r/a: .*(Not a directory|File exists)") as caught:
        place.write("a", b"x")
    assert (caught.value.exit_code, caught.value.remedy) == (1, None)


def test_a_uri_that_names_no_folder_is_refused() -> None:
    with pytest.raises(DataError, match=r"it is ssh://USER@HOST/FOLDER"):
        open_place("ssh://login")
    results_store.require("ssh://login/folder")

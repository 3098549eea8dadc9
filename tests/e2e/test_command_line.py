"""The command line as a real process: its streams and its exit code."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from cloudrec.launchers.base.run_folder import create_run
from cloudrec.launchers.base.runspec import RunSpec

PROGRAM = [sys.executable, "-m", "cloudrec"]
# A shell's background jobs ignore SIGINT; this one handles it like a foreground job.
HEARING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from cloudrec.cli import main; main()"
)
# Runs the command line with some packages hidden, as if they were not installed.
WITHOUT = """
import sys
from importlib.machinery import PathFinder
hidden, find = sys.argv[1], PathFinder.find_spec
def find_others(cls, name, path=None, target=None):
    return None if name.split(".")[0] == hidden else find(name, path, target)
PathFinder.find_spec = classmethod(find_others)
from cloudrec.cli.main import run
sys.exit(run(sys.argv[2:]))
"""
MOST_MODULES = 200


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def cloudrec(
    home: Path, *arguments: str, said: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    work = home.parent / "work"
    work.mkdir(exist_ok=True)
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=work,
        env={**os.environ, "CLOUDREC_HOME": str(home), **(environment or {})},
        input=said,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_help_imports_at_most_two_hundred_modules() -> None:
    program = "import sys\nfrom cloudrec.cli.main import run\ncode = run(['--help'])\nprint(len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout.splitlines()[-1]) <= MOST_MODULES
    assert "Usage: cloudrec" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "init",
        "up",
        "access",
        "catalog",
        "addons",
        "sandbox",
        "train",
        "status",
        "logs",
        "exec",
        "ssh",
        "port-forward",
        "stop",
        "report",
        "serve",
        "down",
        "leaks",
        "doctor",
        "data",
        "completion",
    ],
)
def test_every_command_prints_help_without_torch_or_polars(command: str) -> None:
    program = (
        f"import sys\nfrom cloudrec.cli.main import run\ncode = run([{command!r}, '--help'])\n"
        "print(sorted({'torch', 'polars', 'numpy', 'pydantic'} & set(sys.modules)))\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: cloudrec")
    assert r"\b" not in done.stdout  # click's mark for lines that are not to be joined
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("up", "local"), "clusters"),
        (("up", "local", "--dry-run"), "clusters"),
        (("status",), "runs"),
        (("leaks", "local"), "resources"),
        (("doctor", "local"), "findings"),
        (("down", "local", "--yes"), "clusters"),
    ],
)
def test_stdout_is_a_single_json_document(
    home: Path, arguments: tuple[str, ...], key: str, form: str
) -> None:
    done = cloudrec(home, *arguments, "-o", form)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout) if form == "json" else yaml.safe_load(done.stdout)
    assert document["schema_version"] == 1
    assert isinstance(document[key], list)


def test_an_error_is_a_single_json_document(home: Path) -> None:
    done = cloudrec(home, "stop", "no-such-run", "-o", "json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["exit_code"] == 2
    assert "no-such-run" in error["message"]
    assert done.stderr.startswith("error: there is no run 'no-such-run'")


def test_an_error_after_results_is_part_of_the_single_document(home: Path) -> None:
    kubeconfig = {"KUBECONFIG": str(home.parent / "absent")}
    storage = ("--set", "cluster.settings.storage=s3://bucket/runs")
    done = cloudrec(home, "doctor", "kubernetes", *storage, "-o", "json", environment=kubeconfig)
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    failed = [finding["check"] for finding in document["findings"] if not finding["ok"]]
    assert failed
    assert document["error"]["exit_code"] == 3
    assert document["error"]["message"] == f"not ready: {', '.join(failed)}"


@pytest.mark.parametrize(
    ("arguments", "code", "says", "remedy"),
    [
        (("tran",), 2, "there is no command 'tran'", "did you mean 'train'?"),
        (("up", "locl"), 2, "there is no provider 'locl'", "did you mean 'local'?"),
        (("up", "local", "--cluster", "Bad_Name"), 2, "--cluster: cluster.name is 'Bad_Name'", "a-z"),
        (("up", "local", "--set", "cluster.settings.storag=x"), 2, "storag is not known", "'storage'"),
        (("up", "local", "--set", "nonsense"), 2, "--set nonsense is not KEY=VALUE", "train.max_restarts=5"),
        (("up", "local", "-f", "absent.yaml"), 2, "absent.yaml", "cloudrec init"),
        (("up", "local", "--set", "cluster.settings.min_free_gib=1000000000"), 3, "disk:", "free some space"),
        (("train", "--dataset", "x"), 3, "no cluster is up", "cloudrec up local"),
        (
            ("train", "--nproc-per-node", "0"),
            2,
            "--nproc-per-node: train.nproc_per_node is 0",
            "than 0",
        ),
        (("train", "--resume", "absent"), 2, "there is no run 'absent'", "cloudrec status"),
        (("logs", "absent"), 2, "there is no run 'absent'", "there are no runs yet"),
        (("report",), 2, "there are no runs in", "`cloudrec train` starts one"),
        (("status", "absent"), 2, "there is no cluster or run 'absent'", "cloudrec status"),
        (("data", "prepare", "absent.tsv", "out"), 2, "absent.tsv", ""),
        (("data", "check", "absent"), 2, "absent does not exist", "cloudrec data prepare"),
        (("data", "synth", "out", "--rows", "-5"), 2, "-5", ""),
        (("data", "synth", "out", "--rows", "many"), 2, "'many' is not a valid integer", "--help"),
        (("status", "--watch", "-o", "json"), 2, "--watch prints repeatedly", "not both"),
    ],
)
def test_bad_input_is_reported_with_its_remedy_and_code(
    home: Path, arguments: tuple[str, ...], code: int, says: str, remedy: str
) -> None:
    done = cloudrec(home, *arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert remedy in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == "" or "json" in arguments


def test_no_answer_and_the_answer_no_both_decline(home: Path) -> None:
    assert cloudrec(home, "up", "local").returncode == 0
    for said in ("", "n\n"):
        done = cloudrec(home, "down", said=said)
        assert done.returncode == 6
        assert "nothing was done" in done.stderr
        assert "gone" not in done.stdout + done.stderr
    assert json.loads(cloudrec(home, "status", "-o", "json").stdout)["clusters"][0]["state"] == "READY"
    assert cloudrec(home, "down", said="y\n").returncode == 0
    assert json.loads(cloudrec(home, "leaks", "local", "-o", "json").stdout)["resources"] == []


def test_cloudrec_yes_answers_the_question_in_a_script(home: Path) -> None:
    cloudrec(home, "up", "local")
    assert cloudrec(home, "down", environment={"CLOUDREC_YES": "1"}).returncode == 0


def test_keep_data_keeps_files_of_the_storage_folder(home: Path) -> None:
    cloudrec(home, "up", "local")
    treasure = home / "clusters" / "local" / "storage" / "data" / "treasure"
    treasure.write_text("gold", encoding="utf-8")
    assert cloudrec(home, "down", "--keep-data", "--yes").returncode == 0
    assert treasure.read_text(encoding="utf-8") == "gold"
    (cluster,) = json.loads(cloudrec(home, "status", "-o", "json").stdout)["clusters"]
    assert cluster["state"] == "DOWN"
    assert "cloudrec up local" in cloudrec(home, "train", "--dataset", "x").stderr
    assert cloudrec(home, "up", "local").returncode == 0
    assert cloudrec(home, "down", "--yes").returncode == 0
    assert not treasure.exists()


def test_a_preexisting_folder_is_used_and_never_removed(home: Path) -> None:
    mine = home.parent / "work" / "mine"
    mine.mkdir(parents=True)
    (mine / "diary.txt").write_text("dear", encoding="utf-8")
    setting = f"cluster.settings.storage={mine}"
    assert cloudrec(home, "up", "local", "--set", setting).returncode == 0
    assert cloudrec(home, "down", "--yes").returncode == 0
    assert [path.name for path in mine.iterdir()] == ["diary.txt"]


def test_two_concurrent_commands_do_not_corrupt_each_other(home: Path) -> None:
    environment = {**os.environ, "CLOUDREC_HOME": str(home)}
    running = [
        subprocess.Popen(
            [*PROGRAM, "up", "local"], env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    codes = []
    for process in running:
        process.communicate(timeout=180)
        codes.append(process.returncode)
    assert codes == [0, 0, 0, 0]
    (cluster,) = json.loads(cloudrec(home, "status", "-o", "json").stdout)["clusters"]
    assert cluster["state"] == "READY"


def test_the_shell_completes_commands_and_runs(home: Path) -> None:
    (home / "runs" / "first").mkdir(parents=True)

    def completed(words: str) -> list[str]:
        asked = {
            "_CLOUDREC_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        program = "from cloudrec.cli import main; main()"
        environment = {**os.environ, "CLOUDREC_HOME": str(home), **asked}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("cloudrec st") == ["status", "stop"]
    assert completed("cloudrec logs fi") == ["first"]


def test_init_writes_a_file_that_up_reads_and_never_overwrites(home: Path) -> None:
    assert cloudrec(home, "init").returncode == 0
    assert cloudrec(home, "up", "--dry-run").returncode == 0
    done = cloudrec(home, "init")
    assert done.returncode == 2
    assert "exists" in done.stderr
    assert cloudrec(home, "init", "--force").returncode == 0


def test_a_full_disk_is_reported(home: Path) -> None:
    """A home that cannot be created represents every failing disk."""
    home.write_text("a file, not a folder", encoding="utf-8")
    done = cloudrec(home, "up", "local")
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert "CLOUDREC_HOME" in done.stderr


def test_a_damaged_journal_is_reported_and_down_works_without_it(home: Path) -> None:
    cloudrec(home, "up", "local")
    for file in home.glob("journal.sqlite*"):
        file.unlink()
    (home / "journal.sqlite").write_bytes(b"this is no database at all" * 100)
    done = cloudrec(home, "status")
    assert done.returncode == 1
    assert "journal" in done.stderr
    assert "move it away" in done.stderr
    (home / "journal.sqlite").unlink()
    assert cloudrec(home, "down", "local", "--yes").returncode == 0
    assert json.loads(cloudrec(home, "leaks", "local", "-o", "json").stdout)["resources"] == []


def test_down_forget_drops_a_cluster_from_the_journal_and_removes_nothing(home: Path) -> None:
    cloudrec(home, "up", "local")
    assert cloudrec(home, "down", "--forget", "--yes").returncode == 2
    assert cloudrec(home, "down", "--cluster", "other", "--forget", "--yes").returncode == 2
    assert cloudrec(home, "down", "--cluster", "local", "--forget", said="n\n").returncode == 6
    shown = cloudrec(home, "down", "--cluster", "local", "--forget", "--dry-run")
    assert "machine/local" in shown.stderr
    assert json.loads(cloudrec(home, "status", "-o", "json").stdout)["clusters"]
    done = cloudrec(home, "down", "--cluster", "local", "--forget", "--yes", "-o", "json")
    assert json.loads(done.stdout)["clusters"] == [{"name": "local", "forgotten": True}]
    assert json.loads(cloudrec(home, "status", "-o", "json").stdout)["clusters"] == []
    assert json.loads(cloudrec(home, "leaks", "local", "-o", "json").stdout)["resources"]
    assert cloudrec(home, "down", "local", "--yes").returncode == 0


def test_damaged_runs_are_shown_with_the_reason_and_do_not_affect_other_runs(home: Path) -> None:
    cloudrec(home, "up", "local")
    good = create_run(home / "runs", RunSpec(name="good"))
    good.ledger.append("succeeded", launch=1)
    good.rank_log(0).write_text("hello\n")
    for number, (key, value) in enumerate(
        [
            ("environment", None),
            ("trainer_config", []),
            ("target", 1.5),
            ("trainer_flags", [1]),
            ("nodes", 10**399),
        ]
    ):
        odd = create_run(home / "runs", RunSpec(name=f"odd-{number}"))
        odd.spec_file.write_text(json.dumps({**json.loads(odd.spec_file.read_text()), key: value}))
    for name in ("metrics.jsonl", "spec.json"):
        odd = create_run(home / "runs", RunSpec(name=f"pipe-{name[:4]}"))
        (odd.path / name).unlink(missing_ok=True)
        os.mkfifo(odd.path / name)
    shown = cloudrec(home, "status", "-o", "json")
    assert shown.returncode == 0, shown.stderr
    runs = {run["name"]: run for run in json.loads(shown.stdout)["runs"]}
    assert runs.pop("good")["state"] == "SUCCEEDED"
    assert len(runs) == 7
    assert all("damaged: " in run["cause"] for run in runs.values())
    assert cloudrec(home, "status", "--events").returncode == 0
    assert cloudrec(home, "logs", "good").stdout == "hello\n"
    assert cloudrec(home, "report", "good").returncode == 0
    assert cloudrec(home, "report", "odd-1").returncode == 2
    assert cloudrec(home, "down", "--yes").returncode == 0
    assert not good.path.exists()


def test_a_closed_pipe_prints_no_error() -> None:
    with subprocess.Popen(
        [*PROGRAM, "init", "--print"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_ctrl_c_at_the_question_exits_with_130_and_changes_nothing(home: Path) -> None:
    cloudrec(home, "up", "local")
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", HEARING, "down"],
        env={**os.environ, "CLOUDREC_HOME": str(home)},
        stdin=terminal,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(terminal)
    assert process.stderr is not None
    seen = b""
    while b"[y/N]" not in seen:
        more = os.read(process.stderr.fileno(), 4096)
        assert more, process.communicate()
        seen += more
    give_up = time.monotonic() + 180
    while psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING:
        assert time.monotonic() < give_up  # the question is printed a moment before the answer is read
        time.sleep(0.01)
    process.send_signal(2)
    _, rest = process.communicate(timeout=180)
    os.close(controller)
    assert process.returncode == 130, rest
    assert json.loads(cloudrec(home, "status", "-o", "json").stdout)["clusters"][0]["state"] == "READY"


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("polars", ("data", "synth", "out"), "cloudrec[data]"),
        ("numpy", ("data", "prepare", "source", "out"), "cloudrec[data]"),
        ("scipy", ("data", "check", "out"), "cloudrec[data]"),
        ("torch", ("train",), "cloudrec[trainer]"),
        ("torchrec", ("train", "--dry-run"), "cloudrec[trainer]"),
    ],
)
def test_a_missing_extra_is_reported_with_the_install_command(
    home: Path, missing: str, arguments: tuple[str, ...], extra: str
) -> None:
    cloudrec(home, "up", "local")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing, *arguments],
        env={**os.environ, "CLOUDREC_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert missing in done.stderr
    assert extra in done.stderr


@pytest.mark.parametrize("command", ["synth", "prepare"])
def test_ctrl_c_during_a_write_leaves_no_dataset_that_looks_complete(home: Path, command: str) -> None:
    folder = home.parent
    if command == "prepare":
        cloudrec(home, "data", "synth", str(folder / "raw"), "--rows", "300000", "--test-rows", "100")
        arguments = ["data", "prepare", str(folder / "raw"), str(folder / "out")]
    else:
        arguments = ["data", "synth", str(folder / "out"), "--rows", "3000000"]
    process = subprocess.Popen([sys.executable, "-c", HEARING, *arguments], stderr=subprocess.PIPE)
    give_up = time.monotonic() + 180
    while not any(path.is_file() for path in (folder / "out").rglob("*")):
        assert time.monotonic() < give_up
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=180)
    if process.returncode == 0:  # it ended before the signal
        return
    assert process.returncode == 130, printed
    kept = f"error: interrupted; nothing is left in {folder / 'out'}".encode()
    assert kept in printed  # and the command that starts again: tests/e2e/test_left_behind.py
    assert not list((folder / "out").glob("*.json"))
    arguments = [*arguments[:-1], "1000"] if command == "synth" else arguments
    again = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=180, check=False)
    assert again.returncode == 0, again.stderr


def test_down_by_name_searches_the_journal_and_then_the_configured_providers(home: Path) -> None:
    bare = {
        "AWS_CONFIG_FILE": "none",
        "AWS_SHARED_CREDENTIALS_FILE": "none",
        "AWS_EC2_METADATA_DISABLED": "1",
    }
    assert cloudrec(home, "up", "local", "--cluster", "mine", "--yes").returncode == 0
    unknown = cloudrec(home, "down", "--cluster", "other", environment=bare)
    assert unknown.returncode == 0
    assert "nothing to remove" in unknown.stdout
    assert "aws was not searched: no AWS region is named" in unknown.stderr
    known = cloudrec(home, "down", "--cluster", "mine", "--yes", environment=bare)
    assert known.returncode == 0
    assert "not searched" not in known.stderr

"""Modules of the current folder never replace cloudrec's modules or those that it imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudrec.cli.main import _COMMANDS
from cloudrec.providers.base.kubeconfig import kubeconfig
from tests.e2e.support_bench import SMALL, Bench

ROOT = Path(__file__).parents[2]
FOREIGN = (
    *("trainer.py", "cloudrec.py", "torch.py", "yaml.py", "click.py", "numpy.py", "json.py", "polars.py"),
    *("pydantic.py", "fsspec.py", "tensorboard.py", "sitecustomize.py", "package/__main__.py"),
)
OWN_LOADER = "from trainer.data.formats.synthetic import made_up as make\n"


class ForeignBench(Bench):
    """A bench whose current folder has modules of common names, which write a marker file when they run."""

    program = (sys.executable, "-P", "-m", "cloudrec")  # as the script `cloudrec` runs: without this folder

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.mark = folder / "mark"
        for name in FOREIGN:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(
                f"open({str(self.mark)!r}, 'a').write(__file__)\nraise SystemExit(99)\n"
            )

    def as_package(self) -> None:
        """Replace the module `trainer` by a package."""
        (self.folder / "trainer.py").unlink(missing_ok=True)
        (self.folder / "package").rename(self.folder / "trainer")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignBench]:
    bench = ForeignBench(tmp_path_factory.mktemp("foreign"))
    try:
        bench.run("data", "synth", "raw", "--rows", "4000", "--seed", "3")
        bench.run("data", "prepare", "raw", "prepared")
        bench.run("up", "local")
        yield bench
    finally:
        for process in bench.processes():
            process.kill()


@pytest.fixture(autouse=True)
def nothing_foreign_runs(bench: ForeignBench) -> Iterator[None]:
    yield
    assert not bench.mark.exists(), bench.mark.read_text()


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_prints_help(bench: ForeignBench, command: str) -> None:
    bench.run(command, "--help")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("data", "check", "prepared", "--deep"), 0),
        (("data", "push", "prepared", "there"), 0),
        (("init", "--print"), 0),
        (("doctor", "local"), 0),
        (("status",), 0),
        (("leaks", "local"), 0),
        (("logs", "no-such-run"), 2),
        (("train", "--dataset", "prepared", "--dry-run"), 0),
        (("train", "--dataset", "prepared", "--dry-run", "--", "--batch_size", "none"), 2),
        (("completion", "bash"), 0),
        (("up", "local", "--dry-run"), 0),
        (("down", "--dry-run"), 0),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else str(words),
)
def test_a_command_ignores_modules_of_the_same_names_in_the_current_folder(
    bench: ForeignBench, words: tuple[str, ...], code: int
) -> None:
    bench.run(*words, expect=code)


@pytest.mark.slow
def test_a_run_uses_the_shipped_trainer_and_writes_checkpoints(bench: ForeignBench) -> None:
    flags = (*SMALL, "--num_iterations", "20", "--checkpoint_interval", "10", "--checkpoint_async", "true")
    bench.run("train", "--name", "one", "--dataset", "prepared", "--", *flags)
    assert bench.view("one")["state"] == "SUCCEEDED"
    assert bench.view("one")["checkpoint"] == 20
    bench.run("report", "one", "--force")
    bench.run("fetch", "one")


@pytest.mark.slow
def test_the_checkpoint_writer_runs_the_module_of_the_shipped_trainer(bench: ForeignBench) -> None:
    flags = (*SMALL, "--num_iterations", "20", "--checkpoint_interval", "10", "--checkpoint_async", "true")
    data = ("--dataset", "trainer.data.formats.synthetic:made_up", "--checkpoint_dir", "checkpoints")
    words = [sys.executable, "-P", "-m", "trainer", *data, "--output_dir", "alone", *flags]
    done = subprocess.run(words, cwd=bench.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(bench.folder.glob("checkpoints/step-00000020/commit-*.json"))


@pytest.mark.slow
def test_a_custom_loader_is_found_in_the_current_folder(bench: ForeignBench) -> None:
    (bench.folder / "my_loader.py").write_text(OWN_LOADER)
    flags = (*SMALL, "--num_iterations", "5", "--dataset", "my_loader:make")
    bench.run("train", "--name", "own", "--", *flags)
    assert bench.view("own")["state"] == "SUCCEEDED"


def test_a_package_named_trainer_is_not_run(tmp_path: Path, bench: ForeignBench) -> None:
    other = ForeignBench(tmp_path)
    other.as_package()
    other.home = bench.home
    other.run("train", "--dataset", str(bench.folder / "prepared"), "--dry-run")
    assert not other.mark.exists()


@pytest.mark.parametrize("module", ["aws", "azure", "gcp"])
def test_a_credentials_command_runs_in_any_folder(bench: ForeignBench, module: str) -> None:
    command = ("-m", f"cloudrec.providers.{module}.token")
    made = kubeconfig(name="c", server="https://s", authority="", command=command, environment={})
    started = made["users"][0]["user"]["exec"]
    words = [started["command"], *started["args"], "--help"]
    done = subprocess.run(words, cwd=bench.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"cloudrec.providers.{module}.token" in done.stdout


def test_every_module_that_the_product_starts_is_started_with_a_safe_path() -> None:
    """The launchers' commands run on remote machines, so this test checks each literal argument list."""
    unsafe, seen = [], 0
    for path in [*ROOT.glob("cloudrec/**/*.py"), *ROOT.glob("trainer/**/*.py"), *ROOT.glob("scripts/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words = _words(node) if isinstance(node, ast.List | ast.Tuple) else []
            if isinstance(node, ast.expr) and "-m" in words[1:]:
                seen += 1
                unsafe += [] if "-P" in words else [f"{path.relative_to(ROOT)}:{node.lineno}"]
    assert unsafe == []
    assert seen > 10


def _words(node: ast.List | ast.Tuple) -> list[str]:
    """Return the words of a literal list, with empty strings for other expressions."""
    return [str(each.value) if isinstance(each, ast.Constant) else "" for each in node.elts]

"""Runs a page: one shell for all of its blocks, in an empty folder, with the wheel.

The two wheels are built once a session. `python3 -m venv` gives an environment that has the packages of the
development environment, except cloudrec's own, so that a page's `pip install 'cloudrec[aws]'` installs the
wheel, fails if a requirement of the extra is missing, and downloads nothing. With CLOUDREC_DOCS_INDEX=1 the
environments are empty, and pip downloads everything.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.support_blocks import ROOT, Block, Page

PATIENCE_S = 600.0
_LEFT_OUT = re.compile(r"(__editable__|cloudrec|pip\b).*", re.IGNORECASE)
_NUMBER = re.compile(r"\b[0-9a-f]*\d(?:[0-9a-f.,:%]*[0-9a-f%])?")
_LINK = ("cp", "-al")
_EXTRAS = "aws,azure,data,faiss,gcp,kubernetes,sandbox,serve,trainer-cpu,ui"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What pages are run with.

    Attributes:
        wheels: the folder of the two wheels.
        programs: folders for PATH.
    """

    wheels: Path
    programs: tuple[Path, ...]


def machine(factory: pytest.TempPathFactory) -> Machine:
    """Return the session's machine; the first process makes it."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "docs-machine"
    folder.mkdir(exist_ok=True)
    made = Machine(wheels=folder / "wheels", programs=(folder / "bin", folder / "env" / "bin"))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            _build_wheels(folder)
            _write_programs(folder)
            _make_environment(made)
            (folder / "made").touch()
    return made


def _build_wheels(folder: Path) -> None:
    source = folder / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    for each in (source, source / "cloudrec_sandbox"):
        subprocess.run([*command, "--wheel-dir", str(folder / "wheels"), str(each)], check=True, timeout=300)


def _write_programs(folder: Path) -> None:
    """Write a python3 whose new environments have the development packages, except cloudrec's.

    They are hard links: pods of the stand-ins see the environment's folder and nothing around it.
    """
    packages, programs = folder / "packages", folder / "bin"
    packages.mkdir()
    programs.mkdir()
    found = Path(sysconfig.get_path("purelib")).iterdir()
    wanted = [entry for entry in found if not _LEFT_OUT.fullmatch(entry.name) and entry.suffix != ".pth"]
    subprocess.run([*_LINK, *wanted, packages], check=True)
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    (programs / "python3").write_text(
        f"""#!/bin/sh
if [ "$1 $2" != "-m venv" ]; then exec {folder}/env/bin/python3 "$@"; fi
{python} "$@" || exit
[ -z "$CLOUDREC_DOCS_INDEX" ] || exit 0
cd "$3"/lib/python3.*/site-packages || exit
printf '#!/bin/sh\nexec "${{0%%/*}}/python3" -m torch.distributed.run "$@"\n' > ../../../bin/torchrun
chmod +x ../../../bin/torchrun  # as pip makes it where it installs torch
rm -rf setuptools* pkg_resources _distutils_hack distutils-precedence.pth  # old ones, which pip would replace
{" ".join(_LINK)} {packages}/* .
"""
    )
    (programs / "python3").chmod(0o755)


def _make_environment(made: Machine) -> None:
    """Make the environment of pages that make none."""
    folder = made.wheels.parent
    environment = {key: value for key, value in os.environ.items() if key != "CLOUDREC_DOCS_INDEX"}
    make = [str(made.programs[0] / "python3"), "-m", "venv", str(folder / "env")]
    subprocess.run(make, env=environment, check=True)
    pip = [str(folder / "env" / "bin" / "pip"), "install", "--quiet", "--no-index", "--find-links"]
    subprocess.run([*pip, str(made.wheels), f"cloudrec[{_EXTRAS}]"], env=environment, check=True, timeout=300)


def run_page(page: Page, made: Machine, folder: Path) -> dict[int, float]:
    """Run a page's blocks in a folder; return the seconds that each took, by its line."""
    blocks = [each for each in page.blocks if _part(each)]
    script = folder / "page.sh"
    (folder / "work").mkdir()
    (folder / "home").mkdir()
    (folder / "out").mkdir()
    script.write_text(_script(blocks, folder), encoding="utf-8")
    try:
        process = subprocess.Popen(
            ["bash", str(script)],
            cwd=folder / "work",
            env=_environment(made, folder),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code: int | str = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = f"not ended after {PATIENCE_S:.0f} s"
    finally:
        _end(process, made, folder)
    if code != 0:
        line = (folder / "began").read_text().split()[-2]
        output = (folder / "out" / line).read_text(encoding="utf-8", errors="replace")
        pytest.fail(f"{page.name}:{line}: {code}\n{output[-4000:]}", pytrace=False)
    for block in page.blocks:
        _compare(block, page, folder)
    began = [line.split() for line in (folder / "began").read_text().splitlines()]
    times = [float(each[1]) for each in began]
    return {int(line): after - at for (line, _), at, after in zip(began, times, times[1:], strict=False)}


def _end(process: subprocess.Popen[bytes], made: Machine, folder: Path) -> None:
    """End what the page has started: its own processes, and the stand-ins of `--sandbox`."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if (folder / "home" / ".cloudrec" / "sandbox").exists():
        program = made.programs[1] / "cloudrec"
        subprocess.run([program, "sandbox", "stop"], env=_environment(made, folder), check=False, timeout=120)


def _environment(made: Machine, folder: Path) -> dict[str, str]:
    """Return the variables: none of the user's, so that no real account is in reach."""
    index = os.environ.get("CLOUDREC_DOCS_INDEX", "")
    pip = {key: value for key, value in os.environ.items() if key.startswith("PIP_")} if index else {}
    return {
        "PATH": ":".join([*map(str, made.programs), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(folder / "home"),
        "LANG": "C.UTF-8",
        "AWS_EC2_METADATA_DISABLED": "true",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        **({"CLOUDREC_DOCS_INDEX": index, **pip} if index else {"PIP_NO_INDEX": "1"}),
        "PIP_FIND_LINKS": f"{made.wheels} {pip.get('PIP_FIND_LINKS', '')}".strip(),
    }


def _part(block: Block) -> str | None:
    """Return what the page's shell does with a block; None if nothing."""
    if not (block.is_run_here or block.file):
        return None
    if block.file:
        end = "CLOUDREC_END_OF_FILE"
        return f"mkdir -p $(dirname {block.file})\ncat > {block.file} <<'{end}'\n{block.text}{end}\n"
    if block.language == "python":
        return f"python - <<'CLOUDREC_END_OF_FILE'\n{block.text}CLOUDREC_END_OF_FILE\n"
    if block.language == "console":
        return "\n".join(block.commands) + "\n"
    return block.text if block.language == "sh" else None


def _script(blocks: list[Block], folder: Path) -> str:
    parts = ["set -eo pipefail\n"]
    for block in blocks:
        parts.append(f"echo {block.line} $(date +%s.%N) >> {folder}/began\n")
        parts.append(f"{{\n{_part(block)}\n}} > {folder}/out/{block.line} 2>&1\n")
    parts.append(f"echo 0 $(date +%s.%N) >> {folder}/began\ntimes > {folder}/times\n")
    return "".join(parts)


def _compare(block: Block, page: Page, folder: Path) -> None:
    """Compare what a page shows with what was printed: whole lines in their order, whatever the numbers."""
    if block.mark == "<!-- output -->":
        before = [each for each in page.blocks if each.line < block.line and _part(each)]
        shown, of = block.text.splitlines(), before[-1]
    elif block.language == "console" and block.is_run_here:
        text = block.text.replace("\\\n", " ")
        shown, of = [line for line in text.splitlines() if not line.startswith("$ ")], block
        shown = shown if "$ " in text else []
    else:
        return
    printed = (folder / "out" / str(of.line)).read_text(encoding="utf-8", errors="replace").splitlines()
    left = iter([loose(line) for line in printed])
    for line in shown:
        wanted = loose(line)
        if wanted and wanted != "...":
            found = any(re.fullmatch(_pattern(wanted), each) for each in left)
            assert found, f"{page.name}:{block.line}: not printed: {line}\n" + "\n".join(printed)


def loose(line: str) -> str:
    """Return a line with one name for all numbers and one space for several."""
    return " ".join(_NUMBER.sub("0", line).split())


def _pattern(wanted: str) -> str:
    return re.escape(wanted).replace(re.escape("..."), ".*")


def main_times(times: dict[int, float], folder: Path) -> str:
    """Return seconds by line, and those of a processor without those of stand-ins that stay."""
    shares = re.findall(r"(\d+)m([\d.]+)s", (folder / "times").read_text(encoding="utf-8"))
    used = sum(60 * int(minutes) + float(seconds) for minutes, seconds in shares)
    by_line = ", ".join(f"{line}: {seconds:.1f}" for line, seconds in times.items())
    return f"{sum(times.values()):.0f} s, of a processor {used:.0f} s: {by_line}"

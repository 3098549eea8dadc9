"""Make the virtual environment: the tested trio of torch, fbgemm and torchrec, and everything else.

Standard library only, since it runs before anything is installed. On a machine with an NVIDIA GPU
the CUDA build of fbgemm is taken, else the CPU build; torchrec's metadata demands the CUDA build in
both cases, so it is installed with --no-deps beside its real needs.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AZURITE = "3.35.0"  # Azure Blob Storage's stand-in for the tests, a program for node
TORCH, FBGEMM, TORCHREC = "2.13.0", "1.8.0", "1.8.0"  # they must match: 1.9.0 does not load with torch 2.13
MINIMUM = (3, 11)


def has_gpu() -> bool:
    """Return whether an NVIDIA driver is at work on this machine."""
    if Path("/proc/driver/nvidia/version").exists():
        return True
    smi = shutil.which("nvidia-smi")
    return smi is not None and subprocess.run([smi, "-L"], capture_output=True, check=False).returncode == 0


def main() -> int:
    """Create the environment named on the command line; run again, it only installs what changed."""
    if sys.version_info < MINIMUM:
        found = ".".join(map(str, sys.version_info[:3]))
        print(
            f"error: Python {found} is too old: cloudrec needs 3.11 or newer; try make PYTHON=python3.11",
            file=sys.stderr,
        )
        return 3
    target = Path(sys.argv[1])
    python = target / "bin" / "python"
    if not python.exists():
        venv.create(target, with_pip=True)
    fbgemm = "fbgemm-gpu" if has_gpu() else "fbgemm-gpu-cpu"

    def pip(*arguments: str) -> None:
        command = [str(python), "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, "--no-warn-conflicts", "--no-compile", *arguments], check=True, cwd=ROOT)

    # pip works on one core, and compiling is half of its work: the other cores do that, and npm's part.
    azurite = begin_azurite(target / "azurite")
    if azurite is not None:
        atexit.register(azurite.wait)  # it does not outlive this process, even where pip fails
    pip(f"torch=={TORCH}")
    torch = begin_compiling(python, jobs=1)
    atexit.register(torch.wait)
    # The two distributions require each other, and no package index has them: both are installed first.
    pip("--no-deps", "--editable", ".", "--editable", "./cloudrec_sandbox")
    # The extra's fbgemm is the CPU one: on a GPU machine its other needs are named without it.
    constraints = ["--constraint", "constraints.txt"]
    if fbgemm == "fbgemm-gpu":
        needs = [n for n in trainer_needs() if not n.startswith(("fbgemm", "torch>", "torchrec"))]
        pip(*constraints, *needs, "--editable", ".[data,dev,aws,azure,faiss,gcp,kubernetes,ray,serve,ui]")
    else:
        pip(*constraints, "--editable", ".[data,dev,aws,azure,faiss,gcp,kubernetes,ray,serve,trainer-cpu,ui]")
    # Last, so that pip does not complain of the CUDA build that torchrec's metadata asks for.
    pip("--no-deps", f"{fbgemm}=={FBGEMM}", f"torchrec=={TORCHREC}")
    torch.wait()
    begin_compiling(python, jobs=0).wait()
    if azurite is not None and azurite.wait() != 0:
        print("note: Azurite could not be installed, so tests of Azure Blob Storage are skipped")
    return 0


def begin_azurite(target: Path) -> subprocess.Popen[bytes] | None:
    """Begin to install Azurite where npm is at hand; without it, the tests that need it are skipped."""
    npm = shutil.which("npm")
    if npm is None or (target / "node_modules" / "azurite" / "package.json").exists():
        return None
    command = [npm, "install", "--prefix", str(target), "--no-audit", "--no-fund", "--ignore-scripts"]
    return subprocess.Popen([*command, "--loglevel=error", f"azurite@{AZURITE}"])


def begin_compiling(python: Path, *, jobs: int) -> subprocess.Popen[bytes]:
    """Begin to compile what is installed and not compiled yet; packages hold files that are no Python, too.

    Args:
        python: the environment's.
        jobs: processes; 0 for one a core.
    """
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = subprocess.run([str(python), "-c", where], check=True, capture_output=True, text=True).stdout
    command = [str(python), "-P", "-W", "ignore", "-m", "compileall", "-q", "-j", str(jobs), folder.strip()]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def trainer_needs() -> list[str]:
    """Return the requirements of the extra `trainer-cpu` as pyproject.toml states them."""
    import tomllib  # noqa: PLC0415  # absent before 3.11, which main() reports politely

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["optional-dependencies"]["trainer-cpu"])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as failure:
        print(f"error: installing failed ({failure}); pip's own words are above", file=sys.stderr)
        sys.exit(3)

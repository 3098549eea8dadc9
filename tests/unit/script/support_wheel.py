"""A wheel that is written by hand, which pip installs without a package index."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str = "canary_package", version: str = "1.0") -> str:
    """Write a wheel of one module; return the requirement that names it from the folder above."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as wheel:
        contents = {
            f"{name}.py": f"VERSION = '{version}'\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
        }
        for path, text in contents.items():
            wheel.writestr(zipfile.ZipInfo(path), text)  # with the same time in each wheel
    return f"./{folder.name}/{file.name}"

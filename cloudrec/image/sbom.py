"""The bill of materials of a pod without an image: the locked packages, as CycloneDX 1.6.

The format is described at https://cyclonedx.org/docs/1.6/json. A package has several hashes, since it has
a file for each version of Python. Which one a pod installs is known there only, so each is an external
reference.
"""

from __future__ import annotations

import json
import uuid
from importlib.resources import files
from typing import Any

from cloudrec.image.bootstrap import LOCK, Package, packages_of
from cloudrec.version import __version__

_NAMESPACE = uuid.UUID("a32cb4bf-2b7c-4c4a-9b0c-3d5b6f1f1f0e")  # of the serial numbers of these documents


def bill_of_materials(parts: tuple[str, ...]) -> dict[str, Any]:
    """Return the CycloneDX document of some parts of the lock.

    The same parts of the same version give the same document, so that two can be compared.

    Args:
        parts: some of `bootstrap.PARTS`.
    """
    lock = files("cloudrec.image").joinpath("files", LOCK).read_text(encoding="utf-8")
    components = [_component(each) for each in packages_of(lock, parts)]
    content = json.dumps([__version__, sorted(parts), components])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "cloudrec",
                "name": "cloudrec",
                "version": __version__,
                "purl": _purl("cloudrec", __version__),
            }
        },
        "components": components,
        "dependencies": [{"ref": "cloudrec", "dependsOn": [each["bom-ref"] for each in components]}],
    }


def _component(package: Package) -> dict[str, Any]:
    purl = _purl(package.name, package.version)
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
    }
    hashes = [{"alg": "SHA-256", "content": each} for each in package.hashes]
    if len(hashes) == 1:
        return {**component, "hashes": hashes}
    references = [{"type": "distribution", "url": purl, "hashes": [each]} for each in hashes]
    return {**component, "externalReferences": references}


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"

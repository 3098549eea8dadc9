"""The versions of a publication, and the way to one of them. This module must not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.base.errors import ConfigError
from trainer.serving.publication.format import (
    VERSIONS,
    PublicationError,
    PublicationManifest,
    manifest_name,
    number_of,
    parse_manifest,
    version_name,
)

if TYPE_CHECKING:
    from trainer.serving.publication.pieces import PieceReader

_LARGEST_MANIFEST = 64 << 20  # bytes
_DIGITS = 18  # of a version's number, at most


@dataclass(frozen=True, slots=True)
class LoadRoute:
    """The way to a version: from a full one, or from the one that is held, by deltas.

    Args:
        target: the version.
        sha256: of its manifest.
        full: the full version that it begins with; None: the one that is held.
        deltas: what is applied, in this order.
    """

    target: PublicationManifest
    sha256: str
    full: PublicationManifest | None
    deltas: tuple[PublicationManifest, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes of rows to read."""
        return (self.full.full_bytes if self.full else 0) + sum(each.delta_bytes for each in self.deltas)


class VersionList:
    """The versions of a publication."""

    def __init__(self, pieces: PieceReader) -> None:
        self._pieces = pieces
        self._known: dict[int, tuple[PublicationManifest, str]] = {}

    def numbers(self) -> list[int]:
        """Return the numbers of all versions, oldest first."""
        names = self._pieces.sizes(VERSIONS)
        return sorted(number for name in names if (number := number_of(name)) is not None)

    def manifest(self, number: int) -> PublicationManifest:
        """Return the manifest of a version.

        Raises:
            PublicationError: there is no such version, or it is damaged, of a newer format, or foreign.
        """
        return self._find(number)[0]

    def sha256(self, number: int) -> str:
        """Return the sha256 of a version's manifest; raises as `manifest` does."""
        return self._find(number)[1]

    def forget_before(self, number: int) -> None:
        """Forget the manifests of earlier versions."""
        self._known = {each: found for each, found in self._known.items() if each >= number}

    def route(self, number: int, held: tuple[int, str] | None = None) -> LoadRoute:
        """Return the way to a version that reads the fewest bytes.

        Args:
            number: the version.
            held: number and sha256 of a version in memory.

        Raises:
            PublicationError: a version on every way is missing, damaged, or not what its delta was made from.
        """
        target, digest = self._find(number)
        if held == (number, digest):
            return LoadRoute(target, digest, None)
        full: LoadRoute | None = None
        walked: list[PublicationManifest] = []
        at: PublicationManifest | None = target
        while at is not None:
            if at.full and full is None:
                full = LoadRoute(target, digest, at, tuple(reversed(walked)))
            if full is not None and (held is None or held[0] >= at.version):
                return full
            walked.append(at)
            if at.delta and at.parent is not None and held == (at.parent.version, at.parent.sha256):
                near = LoadRoute(target, digest, None, tuple(reversed(walked)))
                return near if full is None or near.bytes <= full.bytes else full
            at = self._before(at, needed=full is None)
        if full is None:
            raise PublicationError(
                f"{self._pieces.uri}: no full version leads to {version_name(number)}; publish with --full"
            )
        return full

    def _before(self, manifest: PublicationManifest, *, needed: bool) -> PublicationManifest | None:
        """Return the version that a delta was made from; None if it is no delta, or not `needed` and lost."""
        parent = manifest.parent
        if not manifest.delta or parent is None:
            return None
        try:
            found, digest = self._find(parent.version)
        except PublicationError:
            if needed:
                raise
            return None
        if digest == parent.sha256:
            return found
        if needed:
            raise PublicationError(
                f"{self._pieces.uri}: version {manifest.name} was made from another version {found.name} "
                "than the one that is there: its files were replaced; put back a copy, or publish with --full"
            )
        return None

    def _find(self, number: int) -> tuple[PublicationManifest, str]:
        if number not in self._known:
            name = manifest_name(number)
            data = self._pieces.head(name, _LARGEST_MANIFEST)
            if data is None:
                raise PublicationError(
                    f"{self._pieces.uri}: has no version {version_name(number)}; it may be removed by now, "
                    "so take the newest"
                )
            self._known[number] = parse_manifest(f"{self._pieces.uri}/{name}", number, data)
        return self._known[number]


def parse_version(name: str) -> int:
    """Return the number of a version's name; ConfigError for any other text."""
    if not (name.isdecimal() and name.isascii() and len(name) <= _DIGITS):
        raise ConfigError(f"version is {name[:80]!r}; it is a number, such as {version_name(7)}")
    return int(name)

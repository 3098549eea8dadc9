"""The options of `data prepare`, and their limits."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

ENCODING_OPTIONS = ("encoding", "min_frequency", "max_vocabulary", "hash_buckets")  # that `like` decides


def refusal_beside_like(names: Iterable[str]) -> UsageError:
    """Return the error for options that `like` excludes."""
    given = ", ".join(f"--{name.replace('_', '-')}" for name in names)
    return UsageError(
        f"--like takes the encoding of another dataset, so {given} cannot be chosen",
        remedy="give --like alone, or leave it out to make a new encoding",
    )


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """The options of `data prepare`."""

    like: str | None = (
        None  # a dataset or an export whose encoding is taken: the four below do not count then
    )
    grow: bool = False  # the vocabulary of `like` gets the new values of these rows
    forget_after: int | None = None  # preparations after which an unseen value may give its id to a new one
    encoding: str = "vocabulary"  # or "hash"
    min_frequency: int = 3  # a category seen less often in the training rows counts as unknown
    max_vocabulary: int = (
        1 << 24
    )  # distinct categories a feature may have before counting them takes too much memory
    hash_buckets: int = 100_000  # ids of each feature with hash encoding, the missing one included
    test_fraction: float = 0.1  # held out when the source is not already split
    max_bad_rows: int = 0
    labels: str = "required"  # or "optional": files without a label make a dataset that can only be scored
    shard_rows: int = 262_144
    chunk_bytes: int = 8 << 20
    seed: int = 0  # which rows are held out
    overwrite: bool = False
    threads: int | None = None  # chunks parsed at once; by default the processors there are, at most 8

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if self.encoding not in ("vocabulary", "hash"):
            raise UsageError(f"encoding is {self.encoding!r}; it must be 'vocabulary' or 'hash'")
        if self.labels not in ("required", "optional"):
            raise UsageError(f"labels is {self.labels!r}; it must be 'required' or 'optional'")
        if self.grow and self.like is None:
            raise UsageError(
                "--grow adds new values to the vocabulary of another dataset, but --like names none",
                remedy="name the dataset of the day before with --like, or leave --grow out",
            )
        if self.forget_after is not None and not self.grow:
            raise UsageError(
                "--forget-after is for a vocabulary that grows", remedy="add --grow, or leave it out"
            )
        if self.like is not None:
            self._refuse_another_encoding()
        limits = {
            "min_frequency": (1, 1 << 31),
            "max_vocabulary": (1, (1 << 31) - 3),
            "hash_buckets": (2, (1 << 31) - 1),
            "max_bad_rows": (0, 1 << 62),
            "shard_rows": (1, 1 << 24),
            "chunk_bytes": (1, 1 << 30),
            "seed": (0, (1 << 63) - 1),
            "threads": (1, 256),
            "forget_after": (1, 1 << 20),
        }
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UsageError(f"{name} is {value}; it must be between {least} and {most}")
        if not 0.0 <= self.test_fraction < 1.0:
            raise UsageError(f"test_fraction is {self.test_fraction}; it must be at least 0 and less than 1")

    def _refuse_another_encoding(self) -> None:
        """Refuse options that the encoding of `like` decides."""
        changed = [
            f.name for f in fields(self) if f.name in ENCODING_OPTIONS and getattr(self, f.name) != f.default
        ]
        if changed:
            raise refusal_beside_like(changed)

"""What became of a mutant that was sent to a stand-in, and the counts of a machine's mutants."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from tests.contract.mutants.verdicts import Catch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.mutants.changes import Mutant
    from tests.contract.mutants.verdicts import Lack, Verdict

Outcome = Literal["refused", "accepted", "defect"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a stand-in did with a request.

    Attributes:
        outcome: whether it refused the request, at once or later; `defect` if the stand-in itself failed.
        words: its words.
    """

    outcome: Outcome
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One mutant: what the vendor does with it, and what the stand-in did."""

    cloud: str
    machine: str
    request: str
    mutant: Mutant
    verdict: Verdict
    answer: Answer
    caught: Catch = field(default_factory=Catch)

    @property
    def is_hole(self) -> bool:
        """Whether the stand-in accepts, or fails over, what the vendor refuses."""
        return self.verdict.kind == "refuse" and self.answer.outcome != "refused"

    @property
    def is_too_strict(self) -> bool:
        """Whether the stand-in refuses, or fails over, what the vendor accepts."""
        return self.verdict.kind in {"free", "effect"} and self.answer.outcome != "accepted"

    def __str__(self) -> str:
        return (
            f"{self.machine} {self.request} {self.mutant}: {self.verdict.kind} ({self.verdict.reason}); "
            f"{self.answer.outcome} {self.answer.words[:160]}"
        )


@dataclass(kw_only=True)
class Counts:
    """The counts of one cloud.

    Attributes:
        results: each mutant's.
        measured: the machine types and what their nodes lack, where the real agent refused such a node.
    """

    results: list[Result] = field(default_factory=list)
    measured: set[tuple[str, str]] = field(default_factory=set)

    @property
    def refusable(self) -> int:
        """How many mutants the vendor refuses."""
        return sum(each.verdict.kind == "refuse" for each in self.results)

    @property
    def holes(self) -> list[Result]:
        """Mutants that the vendor refuses and the stand-in does not."""
        return [each for each in self.results if each.is_hole]

    @property
    def too_strict(self) -> list[Result]:
        """Mutants that the vendor accepts and the stand-in does not."""
        return [each for each in self.results if each.is_too_strict]

    @property
    def share(self) -> float:
        """The share of refused ones among the mutants that the vendor refuses, in percent."""
        return 100 * (1 - len(self.holes) / self.refusable) if self.refusable else 100.0

    @property
    def effects(self) -> list[Result]:
        """Mutants that the vendor accepts, and with which the node or the run is wrong."""
        return [each for each in self.results if each.verdict.kind == "effect"]

    @property
    def states(self) -> list[tuple[str, Lack]]:
        """The machine types and what their nodes lack, for the effects that the node check is to find."""
        found = [(each.machine, each.caught.lacks) for each in self.effects if each.caught.lacks]
        return list(dict.fromkeys(found))

    def row(self) -> dict[str, float | int]:
        """Return the numbers of the printed table."""
        kinds = Counter(each.verdict.kind for each in self.results)
        return {
            "machines": len({each.machine for each in self.results}),
            "mutants": len(self.results),
            "vendor_refuses": kinds["refuse"],
            "refused": kinds["refuse"] - len(self.holes),
            "holes": len(self.holes),
            "percent": round(self.share, 1),
            "free": kinds["free"],
            "effect": kinds["effect"],
            "measured": sum((each.machine, each.caught.lacks) in self.measured for each in self.effects),
            "claimed": sum(
                bool(each.caught.by) and (each.machine, each.caught.lacks) not in self.measured
                for each in self.effects
            ),
            "uncaught": sum(not each.caught.by for each in self.effects),
            "too_strict": len(self.too_strict),
            "unknown": kinds["unknown"],
        }


class Requests(Protocol):
    """The requests for one machine type, as the client sent them to a stand-in."""

    cloud: str

    def results(self, machine: str, *, every: int = 1) -> Iterator[Result]:
        """Yield each mutant (or each n-th) of the machine's requests with its verdict and its answer."""

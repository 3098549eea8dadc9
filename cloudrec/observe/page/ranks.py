"""The ranks of a run, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.launchers.base import outputs
from cloudrec.launchers.base.ledger import last_launch
from cloudrec.observe.metrics import finite
from cloudrec_contract import exit_codes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launchers.base.ledger import LedgerEvent
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.observe.page.sharding import RankShare, ShardingView

SHOWN = 64
_LINE = 160  # characters


@dataclass(frozen=True, kw_only=True)
class RankView:
    """One rank.

    Attributes:
        rank: its number.
        state: running, ended, or why it ended.
        tone: good, bad, warn, live or plain.
        attempt: the newest attempt of the newest launch; None if it has not started in it.
        share: its part of the tables; None if that is not known.
        line: the last line that it printed on this machine; empty if there is none.
    """

    rank: int
    state: str
    tone: str
    attempt: int | None
    share: RankShare | None
    line: str


def rank_views(
    run: RunFolder,
    events: Sequence[LedgerEvent],
    sharding: ShardingView | None,
    *,
    world_size: int,
    is_over: bool,
) -> list[RankView]:
    """Return the first ranks of a run, in their order.

    Args:
        run: the run.
        events: its ledger.
        sharding: its sharding plan; None if there is none.
        world_size: the number of its ranks.
        is_over: whether it has ended.
    """
    launch = last_launch(events)
    started: dict[int, int] = {}
    ended: dict[int, tuple[int, object]] = {}
    for event in events:
        rank, attempt = finite(event.details.get("rank")), finite(event.details.get("attempt"))
        if event.launch != launch or rank is None:
            continue
        if event.event == "rank_started":
            started[int(rank)] = int(attempt or 0)
        elif event.event == "rank_ended":
            ended[int(rank)] = int(attempt or 0), event.details.get("exit_code")
    views = []
    for rank in range(min(world_size, SHOWN)):
        state, tone = _state(started.get(rank), ended.get(rank), is_over=is_over)
        views.append(
            RankView(
                rank=rank,
                state=state,
                tone=tone,
                attempt=started.get(rank),
                share=sharding.share_of(rank) if sharding else None,
                line=_last_line(run, rank),
            )
        )
    return views


def _state(started: int | None, ended: tuple[int, object] | None, *, is_over: bool) -> tuple[str, str]:
    if started is None:
        return "not seen from here", "plain"
    if ended is not None and ended[0] >= started:
        codes = {
            exit_codes.FINISHED: ("finished", "good"),
            exit_codes.STOPPED: ("stopped with a checkpoint", "warn"),
            exit_codes.PEER_LOST: ("lost a peer", "warn"),
        }
        code = ended[1]
        return codes.get(code, (f"exit code {code}", "bad")) if isinstance(code, int) else ("ended", "plain")
    return ("gone", "warn") if is_over else ("running", "live")


def _last_line(run: RunFolder, rank: int) -> str:
    lines = outputs.read_tail(run.rank_log(rank), limit=4096).splitlines()
    printed = [line for line in lines if line.strip() and not line.startswith(outputs.ATTEMPT_HEADER)]
    return printed[-1][:_LINE] if printed else ""

"""What the keeper notifies: each event once, also over its restarts, and nothing of before its time."""

from dataclasses import replace

from cloudrec.keeper.notices.detect import ClusterSight, EndedRun, TakenNode, count_of, detect
from cloudrec.launchers.kubernetes.turns import Turn
from cloudrec.notify.notice import Notification
from cloudrec.notify.outbox import Outbox

QUIET = ClusterSight(now=1795000000.0, cluster="ads", pools={})


class Rounds:
    """The rounds of keepers, each of which reads what the one before has written."""

    def __init__(self) -> None:
        self.outbox: Outbox | None = None

    def see(self, sight: ClusterSight) -> list[Notification]:
        outbox, notices = detect(self.outbox, sight)
        self.outbox = Outbox.of(outbox.adding(notices, ["webhook"]).to_json())
        assert self.outbox is not None
        return notices

    def kinds(self, sight: ClusterSight) -> list[str]:
        return [notice.event for notice in self.see(sight)]


def test_ends_of_before_are_not_sent_and_new_ones_once() -> None:
    rounds = Rounds()
    old = EndedRun(run="old", uid="1", has_failed=False)
    new = EndedRun(run="new", uid="2", has_failed=True, cause="rank 1 ran out of memory")
    assert rounds.kinds(replace(QUIET, ends=[old])) == []
    (failed,) = rounds.see(replace(QUIET, ends=[old, new]))
    assert (failed.event, failed.run, failed.text) == (
        "failed",
        "new",
        "Run new has failed: rank 1 ran out of memory",
    )
    assert rounds.kinds(replace(QUIET, ends=[old, new])) == []
    again = EndedRun(run="new", uid="3", has_failed=False)  # the resumed run is another object
    assert rounds.kinds(replace(QUIET, ends=[old, new, again])) == ["finished"]


def test_a_move_is_sent_and_counted_and_a_first_place_is_none() -> None:
    rounds = Rounds()
    assert rounds.kinds(replace(QUIET, pools={"r": "spot-a"})) == []
    assert rounds.kinds(QUIET) == []  # between two places
    (moved,) = rounds.see(replace(QUIET, pools={"r": "spot-b"}))
    assert (moved.text, moved.details["to"]) == ("Run r has moved from spot-a to spot-b.", "spot-b")
    assert rounds.kinds(replace(QUIET, pools={"r": "spot-b"})) == []
    assert rounds.kinds(replace(QUIET, pools={"r": "spot-a"})) == ["moved"]
    assert rounds.outbox is not None
    assert count_of(rounds.outbox)["moves"] == {"r": 2}


def test_a_run_that_another_cluster_hands_over_is_sent_once() -> None:
    first = Turn(
        number=4, launch=1, clusters=("ads", "west"), cluster="ads", by="ads", at=1.0, reason="no capacity"
    )
    rounds = Rounds()
    assert rounds.kinds(replace(QUIET, received={"old": first})) == []
    (moved,) = rounds.see(replace(QUIET, received={"old": first, "r": first}))
    assert (moved.event, moved.run, moved.text) == (
        "moved",
        "r",
        "Run r has moved to cluster ads: no capacity.",
    )
    assert rounds.kinds(replace(QUIET, received={"r": first})) == []
    assert rounds.kinds(replace(QUIET, received={"r": replace(first, number=6)})) == ["moved"]


def test_nodes_that_go_one_after_the_other_are_one_preemption() -> None:
    rounds = Rounds()
    rounds.see(QUIET)
    first, second, third = (TakenNode(run="r", key=key, text=f"{key} was taken") for key in "abc")
    (told,) = rounds.see(replace(QUIET, taken=[first, second]))
    assert told.text == "Run r has lost nodes (2 losses): a was taken. It continues by itself."
    assert rounds.kinds(replace(QUIET, now=QUIET.now + 60, taken=[first, second, third])) == []
    fourth = replace(third, key="d")
    assert rounds.kinds(replace(QUIET, now=QUIET.now + 3600, taken=[third, fourth])) == ["preempted"]
    assert rounds.outbox is not None
    assert count_of(rounds.outbox)["preemptions"] == {"r": 4}


def test_each_share_of_a_budget_is_sent_once_and_the_highest_of_several() -> None:
    rounds = Rounds()
    money = replace(QUIET, budget_usd=200.0)
    shares = []
    for spent in (0.0, 99.0, 100.0, 110.0, 170.0, 160.0, 200.0, 230.0):
        shares += [notice.details["percent"] for notice in rounds.see(replace(money, spent_usd=spent))]
    assert shares == [50, 80, 100]
    assert rounds.see(replace(money, spent_usd=None)) == []  # unknown is not 0
    (jump,) = rounds.see(replace(money, budget_usd=220.0, spent_usd=215.0))  # a new budget, late
    assert jump.details["percent"] == 80
    assert jump.text == "Cluster ads has cost $215.00, 98 % of its budget of $220.00."


def test_the_end_is_sent_before_and_when_it_comes_and_again_if_it_moves() -> None:
    rounds = Rounds()
    end = QUIET.now + 7200
    told = [
        (minute, kind)
        for minute in (0, 60, 89, 91, 95, 119, 121, 130)
        for kind in rounds.kinds(replace(QUIET, now=QUIET.now + 60 * minute, end=end))
    ]
    assert told == [(91, "end-near"), (121, "ended")]
    later = QUIET.now + 130 * 60
    assert rounds.kinds(replace(QUIET, now=later, end=later + 7200)) == []
    assert rounds.kinds(replace(QUIET, now=later + 6000, end=later + 7200)) == ["end-near"]


def test_a_run_without_an_end_or_a_budget_is_quiet() -> None:
    rounds = Rounds()
    assert rounds.kinds(replace(QUIET, spent_usd=1000.0)) == []
    assert rounds.kinds(QUIET) == []

"""Capacity Blocks: searched, bought with a question and a limit, used from their start to their end."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.cli.main import run
from cloudrec.engine.plan import Plan
from cloudrec.errors import CloudrecError, DeclinedError, NoCapacityError, PreflightError, SpecError
from cloudrec.spec.models import BlockSpec
from tests.contract.aws.support import Site
from tests.contract.aws.support_policies import BLOCKS, POLICIES, Deployer
from tests.sandbox.aws.support import Aws

TYPE, ZONE = "p4d.24xlarge", "us-east-1a"
HOURS = 48
FEE = 21.96 * 0.75 * HOURS * 2  # the stand-in's price of two nodes
LEAD = timedelta(minutes=40)


class Block(Site):
    """A cluster with a block, in the time of the stand-in."""

    def __init__(self, aws: Aws, folder: Path, **cluster: Any) -> None:
        given = {"nodes": 2, "capacity": "block", "block_hours": HOURS, **cluster}
        super().__init__(aws, folder, **given)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.aws.control()["virtual_time"], UTC)

    @property
    def application(self) -> AppContext:
        return AppContext(home=self.home, environment=self.aws.env, now=self.now)

    def bought(self) -> BlockSpec:
        """The block in the journal."""
        (record,) = self.application.journal.clusters()
        return BlockSpec.model_validate(record.request["block"])

    def advance_to(self, moment: str, *, and_s: float = 60) -> None:
        self.aws.advance((datetime.fromisoformat(moment) - self.now()).total_seconds() + and_s)

    def group(self) -> dict[str, Any]:
        eks = self.aws.client("eks")
        names = eks.list_nodegroups(clusterName="cloudrec-t")["nodegroups"]
        (name,) = [each for each in names if each.startswith("gpu")]
        row: dict[str, Any] = eks.describe_nodegroup(clusterName="cloudrec-t", nodegroupName=name)
        return dict(row["nodegroup"])

    def machines(self) -> int:
        rows = self.aws.client("ec2").describe_instances(
            Filters=[
                {"Name": "instance-type", "Values": [TYPE]},
                {"Name": "instance-state-name", "Values": ["pending", "running"]},
            ]
        )["Reservations"]
        return sum(len(row["Instances"]) for row in rows)


def purchases(aws: Aws) -> int:
    return sum(call["action"] == "PurchaseCapacityBlock" for call in aws.calls())


@pytest.fixture
def billed(aws: Aws) -> Iterator[Aws]:
    """Keeps a bill; the ends that clients name are those of its clock."""
    aws.control(bill=True, real_times=False)
    yield aws
    aws.control(bill=False, real_times=True)


def test_a_block_is_bought_once_and_its_nodes_run_from_its_start_to_its_end(
    billed: Aws, tmp_path: Path
) -> None:
    aws = billed
    site = Block(aws, tmp_path)
    plans: list[Plan] = []

    def accept(plan: Plan) -> bool:
        plans.append(plan)
        return True

    app.up(site.application, site.cluster, decide=accept)
    (plan,) = plans
    assert plan.upfront is not None
    assert plan.upfront.usd == pytest.approx(FEE)
    assert plan.most.known_usd < 2, "by the hour, the nodes of a block cost nothing more"
    block = site.bought()
    assert (block.zone, block.instance_type, block.nodes, block.is_active) == (ZONE, TYPE, 2, False)
    assert datetime.fromisoformat(block.end) - datetime.fromisoformat(block.usable_until) == LEAD
    (record,) = site.application.journal.clusters()
    assert record.request["expires"] == block.usable_until
    assert record.missing[0].what == "GPU nodes"
    group = site.group()
    assert (group["capacityType"], group["scalingConfig"]["desiredSize"]) == ("CAPACITY_BLOCK", 0)
    paid = {row["kind"]: row["usd"] for row in aws.ask("GET", "/bill")["lines"]}
    assert paid["capacity-block"] == pytest.approx(FEE)

    site.advance_to(block.start)
    app.up(site.application, site.cluster, decide=lambda _plan: True)
    assert purchases(aws) == 1
    assert site.bought().is_active
    assert site.machines() == 2
    aws.advance(3600)
    lines = aws.ask("GET", "/bill")["lines"]
    assert sum(row["usd"] for row in lines if row["kind"] == "instance") < 50, "only the CPU nodes"

    # EventBridge ends the nodes 40 minutes before the block ends, and EC2 would 30 minutes before.
    site.advance_to(block.usable_until, and_s=300)
    assert site.machines() == 0
    site.down()
    assert not [line for line in aws.state() if "capacity-reservation" not in line]


def test_the_nodes_of_a_block_start_without_a_client(billed: Aws, tmp_path: Path) -> None:
    aws = billed
    site = Block(aws, tmp_path)
    site.up()
    assert site.planned() == {}
    block = site.bought()
    site.advance_to(block.start, and_s=-600)
    assert site.machines() == 0
    site.advance_to(block.start, and_s=900)
    assert site.machines() == 2
    site.up()
    assert site.bought().is_active
    assert site.planned() == {}
    site.advance_to(block.usable_until, and_s=300)
    assert site.machines() == 0


def test_a_declined_question_buys_nothing(aws: Aws, tmp_path: Path) -> None:
    site = Block(aws, tmp_path)

    def refuse(plan: Plan) -> bool:
        raise DeclinedError(f"declined {plan.upfront}")

    with pytest.raises(DeclinedError, match="a block of 2 x p4d"):
        app.up(site.application, site.cluster, decide=refuse)
    assert (purchases(aws), site.changes()) == (0, [])


def test_a_price_above_the_limit_buys_nothing(aws: Aws, tmp_path: Path) -> None:
    site = Block(aws, tmp_path)
    with pytest.raises(
        NoCapacityError, match=r"for at most \$100\.00: the cheapest costs \$1,581\.12"
    ) as caught:
        app.up(site.application, site.cluster, decide=lambda _plan: True, most_upfront_usd=100.0)
    assert caught.value.exit_code == 4
    assert purchases(aws) == 0


def test_nothing_is_made_where_no_block_is_offered(aws: Aws, tmp_path: Path) -> None:
    aws.control(capacity_blocks={f"{TYPE}/{ZONE}": 1})
    site = Block(aws, tmp_path)
    with pytest.raises(NoCapacityError, match="2 nodes for 48 hours"):
        site.up()
    assert site.changes() == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"block_hours": 25}, "1 to 14 days.*"),
        ({"block_hours": None}, "block_hours is not set"),
        ({"nodes": 65}, "at most 64 nodes"),
        ({"ttl": "30m"}, "before its block begins"),
        ({"budget_usd": 1000.0}, r"the block costs \$1,581\.12 in advance"),
        ({"settings": {"capacity_reservation_id": "cr-0"}}, "capacity_reservation_id is set"),
        ({"capacity": "flex-start", "block_hours": None}, "aws has on-demand"),
        ({"capacity": "spot"}, "block_hours is set, but cluster.capacity is spot"),
    ],
)
def test_a_request_that_fits_no_block_is_refused_before_anything_is_bought(
    aws: Aws, tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    site = Block(aws, tmp_path, **given)
    with pytest.raises(SpecError, match=words) as caught:
        site.up()
    assert caught.value.remedy
    assert site.changes() == []


def test_a_budget_that_covers_the_block_ends_with_it(aws: Aws, tmp_path: Path) -> None:
    site = Block(aws, tmp_path, budget_usd=2000.0)
    site.up()
    (record,) = site.application.journal.clusters()
    assert record.request["expires"] == site.bought().usable_until


def test_a_purchase_whose_response_is_lost_is_found_and_not_made_again(aws: Aws, tmp_path: Path) -> None:
    site = Block(aws, tmp_path)
    lost = {"service": "ec2", "action": "PurchaseCapacityBlock", "kind": "lost", "times": 1}
    aws.control(faults=[lost])
    with pytest.raises(CloudrecError, match="AWS may have sold the block"):
        site.up()
    site.up()
    assert purchases(aws) == 1
    assert site.bought().upfront_usd == pytest.approx(FEE, abs=0.01)


def test_a_block_of_the_user_may_begin_later_and_must_not_have_ended(aws: Aws, tmp_path: Path) -> None:
    ec2 = aws.client("ec2")
    offered = ec2.describe_capacity_block_offerings(
        InstanceType=TYPE, InstanceCount=1, CapacityDurationHours=48
    )["CapacityBlockOfferings"]
    answer = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offered[0]["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )
    name: str = answer["CapacityReservation"]["CapacityReservationId"]
    given: dict[str, Any] = {
        "capacity": "on-demand",
        "block_hours": None,
        "settings": {"capacity_block_id": name},
    }
    with pytest.raises(PreflightError, match=f"capacity block {name}: 1 x {TYPE}.*needed: 2 nodes"):
        Block(aws, tmp_path, **given).up()
    with pytest.raises(SpecError, match="that of the block"):
        Block(aws, tmp_path, **given, nodes=1, budget_usd=9000.0).up()  # its price is not known
    site = Block(aws, tmp_path, **given, nodes=1)
    site.up()
    assert site.group()["scalingConfig"]["desiredSize"] == 0
    site.advance_to(site.bought().start)
    site.up()
    assert site.machines() == 1
    site.advance_to(site.bought().end)
    with pytest.raises(PreflightError, match=f"capacity reservation {name}: expired"):
        site.up()


class Shell:
    """Runs commands as a user types them."""

    def __init__(
        self, site: Block, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.patch, self.capsys = monkeypatch, capsys
        given = {**site.aws.env, "CLOUDREC_HOME": str(site.home.root), "CLOUDREC_CLUSTER_OWNER": "tester"}
        for name, value in given.items():
            monkeypatch.setenv(name, value)

    def __call__(self, *words: str, answer: str = "") -> tuple[int, str, str]:
        """Return the exit code, stdout and stderr."""
        self.patch.setattr("sys.stdin", io.StringIO(answer))
        self.capsys.readouterr()
        code = run([*words])
        shown = self.capsys.readouterr()
        return code, shown.out, shown.err


@pytest.fixture
def shell(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(Block(aws, tmp_path), monkeypatch, capsys)


WANTED = ("--instance-types", TYPE, "--nodes", "2", "--hours", "48")


def test_the_catalog_lists_blocks_at_80_columns_and_as_json(aws: Aws, shell: Shell) -> None:
    aws.control(capacity_blocks={f"{TYPE}/{ZONE}": 4, f"{TYPE}/us-east-1b": 4})
    code, shown, _ = shell("catalog", "aws", "--blocks", *WANTED)
    assert code == 0
    head, *rows, legend = shown.splitlines()
    assert " ".join(head.split()) == "TYPE ZONE START (UTC) END (UTC) PRICE NODE/H"
    assert "all 2 nodes, paid in advance" in legend
    assert [row.split()[1] for row in rows] == [ZONE, "us-east-1b"]
    assert [row for row in rows if "$1581.12" not in row or "11:30" not in row or len(row) > 80] == []
    _, shown, _ = shell("catalog", "aws", "--blocks", *WANTED, "-o", "json")
    found = json.loads(shown)["blocks"]
    assert found[0]["upfront_usd"] == pytest.approx(FEE)
    assert found[0]["node_hourly_usd"] == pytest.approx(16.47)
    assert purchases(aws) == 0


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (("catalog", "aws", "--hours", "48"), "--hours is only for --blocks"),
        (("catalog", "azure", "--blocks", "--hours", "48"), "provider 'azure' has no blocks of capacity"),
        (("catalog", "--gpu", "H100", "--blocks"), "--gpu and --blocks exclude each other"),
        (("up", "aws", "--max-price", "5"), "--max-price is for --capacity block"),
    ],
)
def test_flags_of_blocks_are_refused_where_they_mean_nothing(
    shell: Shell, words: tuple[str, ...], given: str
) -> None:
    code, _, errors = shell(*words)
    assert code == 2
    assert given in " ".join(errors.split())


def test_yes_buys_nothing_without_a_highest_price_and_no_is_exit_6(aws: Aws, shell: Shell) -> None:
    up = ("up", "aws", "--cluster", "t", "--access", "203.0.113.7", "--capacity", "block", *WANTED)
    code, _, errors = shell(*up, "--yes")
    assert code == 2
    assert "--max-price" in errors
    code, _, errors = shell(*up, answer="n\n")
    assert code == 6
    said = " ".join(errors.split())
    assert "for $1581.12 now, which is not refunded" in said
    assert "buys $1581.12 in advance" in said
    assert shell(*up, "--max-price", "10", "--yes")[0] == 4
    code, shown, _ = shell(*up, "--dry-run", "-o", "json")
    assert code == 0
    upfront = json.loads(shown)["clusters"][0]["upfront"]
    assert upfront["usd"] == pytest.approx(FEE)
    assert purchases(aws) == 0


def test_a_deployer_buys_blocks_with_the_policy_for_them_alone(aws: Aws, tmp_path: Path) -> None:
    deployer = Deployer(aws, tmp_path, nodes=2, capacity="block", block_hours=HOURS)
    with pytest.raises(PreflightError, match="ec2:DescribeCapacityBlockOfferings"):
        deployer.act("up")
    for sid, action in {
        "BuyCapacityBlocks": "PurchaseCapacityBlock",
        "TagBoughtBlocks": "CreateTags",
    }.items():
        less = deepcopy(POLICIES[BLOCKS])
        less["Statement"] = [each for each in less["Statement"] if each["Sid"] != sid]
        deployer.iam.put_user_policy(UserName="deployer", PolicyName=BLOCKS, PolicyDocument=json.dumps(less))
        with pytest.raises(PreflightError, match=f"ec2:{action}"):
            deployer.act("up")
    deployer.iam.put_user_policy(
        UserName="deployer", PolicyName=BLOCKS, PolicyDocument=json.dumps(POLICIES[BLOCKS])
    )
    deployer.act("up")
    aws.control(enforce_iam=False)

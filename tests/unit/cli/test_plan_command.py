"""`cloudrec plan --spot`: its tables, its JSON and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudrec.cli.main import run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two zones of 50 hours; one loses its nodes after each two hours."""
    made = tmp_path / "traces"
    made.mkdir()
    for name, period in (("us-east-1a_p5", 12), ("us-east-1b_p5", 30)):
        data = [1 if number // period % 2 == 0 else 0 for number in range(300)]
        document = {"metadata": {"gap_seconds": 600}, "data": data}
        (made / f"{name}.json").write_text(json.dumps(document))
    return made


def test_the_policies_are_compared_at_80_columns(folder: Path, capsys: Capture) -> None:
    assert run(["plan", "--spot", str(folder), "--work", "24h", "--starts", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    policies = [line.split("  ")[0] for line in lines]
    assert {"cloudrec", "switch, Young/Daly", "stay, Young/Daly", "oracle"} <= set(policies)
    assert any(line.startswith("us-east-1a_p5") and "50 h" in line for line in lines)


def test_a_deadline_compares_the_deadlines_met_and_the_cost(folder: Path, capsys: Capture) -> None:
    words = ["plan", "--spot", str(folder), "--work", "8h", "--deadline", "10h", "--starts", "4"]
    assert run([*words, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    ours, published = document["results"]
    assert ours["policy"] == "cloudrec"
    assert ours["met"] == ours["runs"] == 4
    assert published["policy"] == "uniform progress"
    assert document["basis"] == "simulated"


def test_a_shorter_notice_leaves_less_time_for_the_replacement(folder: Path, capsys: Capture) -> None:
    words = ["plan", "--spot", str(folder), "--work", "24h", "--starts", "4", "-o", "json"]
    found = []
    for more in ([], ["--notice", "30s"]):
        assert run([*words, *more]) == 0
        document = json.loads(capsys.readouterr().out)
        found.append((document["notice_s"], document["results"][0]["goodput"]))
    (usual_s, usual), (short_s, short) = found
    assert (usual_s, short_s) == (120, 30)
    assert short < usual


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--notice", "0"], "is no duration"),
        (["--work", "90h"], "covers 50.0 h, and a run needs 90.0 h"),
        (["--work", "soon"], "'soon'"),
        (["--work", "0.5s"], "between 1s and 365d"),
        (["--deadline", "20h"], "leaves no time"),
        (["--spot-price", "0"], "--spot-price"),
        (["--starts", "0"], "--starts"),
    ],
)
def test_a_wrong_value_is_refused_with_exit_code_2(
    folder: Path, capsys: Capture, words: list[str], said: str
) -> None:
    assert run(["plan", "--spot", str(folder), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        *(["--work", "24h"], ["--deadline", "60h"], ["--restart", "9s"], ["--notice", "30s"], ["--blocking"]),
        *(["--commit", "9s"], ["--spot-price", "0.5"], ["--starts", "2"], ["--nodes", "4"]),
    ],
)
def test_an_option_of_spot_traces_is_refused_without_them(capsys: Capture, words: list[str]) -> None:
    assert run(["plan", "--samples", "1000", *words]) == 2
    said = capsys.readouterr().err
    assert f"error: {words[0]} is only for --spot FOLDER" in said
    assert f"remedy: add --spot FOLDER, or leave {words[0]} out" in said


@pytest.mark.parametrize("text", ["", "{}", '{"metadata": {"gap_seconds": 600}, "data": "x"}', "\x00"])
def test_a_file_that_is_no_trace_is_named(folder: Path, capsys: Capture, text: str) -> None:
    (folder / "bad.json").write_text(text)
    assert run(["plan", "--spot", str(folder)]) == 2
    error = capsys.readouterr().err
    assert "bad.json is no trace" in error
    assert "gap_seconds" in error


def test_a_folder_without_traces_is_refused(tmp_path: Path, capsys: Capture) -> None:
    assert run(["plan", "--spot", str(tmp_path)]) == 2
    assert "has no JSON file" in capsys.readouterr().err


def counted(folder: Path) -> Path:
    """Two zones that count nodes, as multi-node traces do; the first has 4 for half of the time."""
    folder.mkdir()
    for name, counts in (("us-east-1a", (4, 4, 4, 3, 2, 2)), ("us-east-1b", (1, 2, 2, 0, 0, 0))):
        data = [count for count in counts for _ in range(50)]
        document = {"metadata": {"gap_seconds": 600}, "data": data}
        (folder / f"{name}_v100.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize(
    ("words", "shares"), [([], [0.5, 0.0]), (["--nodes", "2"], [1.0, 2 / 6]), (["--nodes", "1"], [1.0, 0.5])]
)
def test_traces_that_count_nodes_have_capacity_where_there_are_enough(
    tmp_path: Path, capsys: Capture, words: list[str], shares: list[float]
) -> None:
    folder = counted(tmp_path / "traces")
    assert run(["plan", "--spot", str(folder), "--work", "24h", "--starts", "2", *words, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["capacity"] for each in document["traces"]] == shares


def test_more_nodes_than_the_traces_count_are_refused(tmp_path: Path, capsys: Capture) -> None:
    folder = counted(tmp_path / "traces")
    assert run(["plan", "--spot", str(folder), "--nodes", "5"]) == 2
    error = capsys.readouterr().err
    assert "count at most 4 nodes, and the run needs 5" in error
    assert "give at most 4 nodes" in error

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from trainer.base.arguments import make_config, parse_arguments
from trainer.base.config import TrainerConfig
from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

BAD = {
    "unknown flag": (["--batch_sise", "3"], "unknown flag --batch_sise; did you mean batch_size?"),
    "dashes too": (["--learning-rat", "3"], "did you mean learning_rate?"),
    "stray word": (["data"], "unexpected argument 'data'; every setting is a flag"),
    "no value": (["--batch_size"], "argument --batch_size: expected one argument"),
    "zero batch": (["--batch_size", "0"], "batch_size: input should be greater than 0, but it is '0'"),
    "negative epochs": (["--num_epochs", "-1"], "num_epochs: input should be greater than 0, but it is '-1'"),
    "not a number": (["--learning_rate", "fast"], "learning_rate: input should be a valid number"),
    "infinite rate": (["--learning_rate", "inf"], "learning_rate: input should be a finite number"),
    "bad list": (
        ["--over_arch_layer_sizes", "8,x,1"],
        "over_arch_layer_sizes: input should be a valid integer",
    ),
    "empty list": (["--over_arch_layer_sizes", ""], "over_arch_layer_sizes:"),
    "zero layer": (
        ["--dense_arch_layer_sizes", "0,64"],
        "dense_arch_layer_sizes: input should be greater than 0",
    ),
    "unknown choice": (
        ["--precision", "fp8"],
        "precision: input should be 'fp32', 'tf32', 'bf16' or 'fp16', but it is 'fp8'",
    ),
    "unknown sharding": (["--sharding_types", "diagonal"], "sharding_types: input should be 'table_wise'"),
    "unknown precision": (["--qcomm_forward_precision", "int3"], "qcomm_forward_precision: input should be"),
    "bottom does not fit": (
        ["--dense_arch_layer_sizes", "128,32"],
        "dense_arch_layer_sizes ends with 32 but embedding_dim is 64",
    ),
    "top is no logit": (
        ["--over_arch_layer_sizes", "128,2"],
        "over_arch_layer_sizes ends with 2; the top MLP",
    ),
    "odd width": (
        ["--embedding_dim", "10", "--dense_arch_layer_sizes", "10"],
        "embedding_dim is 10; the embedding kernels need a multiple of 4: take 12",
    ),
    "two table sizes": (
        ["--num_embeddings", "5", "--num_embeddings_per_feature", "5,5"],
        "num_embeddings and num_embeddings_per_feature are both set",
    ),
    "no way to share tables": (["--no_model_parallel"], "model_parallel is off and data_parallel too"),
    "a plan for replicas": (
        ["--data_parallel", "--sharding_plan", "p.json"],
        "data_parallel replicates every table, so sharding_plan and table_constraints mean nothing",
    ),
    "decay without its kind": (
        ["--lr_decay_steps", "5"],
        "lr_decay_start and lr_decay_steps need lr_decay polynomial, but it is linear",
    ),
    "columns under a number a row": (
        ["--sharding_types", "table_wise,column_wise"],
        "sharding_types allows column_wise, which splits rows, but table_optimizer rowwise_adagrad keeps one",
    ),
    "a grid under a number a row": (
        ["--sharding_types", "grid_shard", "--table_optimizer", "partial_rowwise_adam"],
        "use table_wise, row_wise or table_row_wise, or set table_optimizer to adam",
    ),
    "columns of one table under a number a row": (
        ["--table_constraints", "{C1: {}, C2: {sharding_types: [row_wise, column_wise]}}"],
        "table_constraints: sharding_types of C2 allows column_wise, which splits rows",
    ),
    "unknown sharding of a table": (
        ["--table_constraints", "{C1: {sharding_types: [diagonal]}}"],
        "table_constraints: input should be 'table_wise'",
    ),
    "constraint that is no JSON": (["--table_constraints", "{C1: ["], "--table_constraints cannot be parsed"),
    "no such file": (["--config", "nowhere.yaml"], "cannot read the configuration file nowhere.yaml"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_invalid_configuration_is_refused_with_its_value_and_a_remedy(case: str) -> None:
    words, message = BAD[case]
    with pytest.raises(ConfigError) as caught:
        parse_arguments(words)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 64


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(ConfigError, match=r"batch_size: .*; seed: "):
        parse_arguments(["--batch_size", "0", "--seed", "-1"])


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_column_sharding_is_allowed_for_optimizers_without_row_state(optimizer: str) -> None:
    words = ["--sharding_types", "column_wise,grid_shard", "--table_optimizer", optimizer]
    assert parse_arguments(words).config.table_optimizer == optimizer


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.toml", "batch_size = 32\nlearning-rate = 0.5\ndense_arch_layer_sizes = [8, 64]\n"),
        ("c.yaml", "batch-size: 32\nlearning_rate: 0.5\ndense_arch_layer_sizes: [8, 64]\n"),
    ],
)
def test_flags_override_the_file_and_the_file_overrides_the_defaults(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    words = ["--config", str(tmp_path / name), "--batch-size=64", "--no-resume", "--shuffle", "false"]
    expected = {"batch_size": 64, "learning_rate": 0.5, "dense_arch_layer_sizes": (8, 64), "resume": False}
    assert parse_arguments(words).config == make_config({**expected, "shuffle": False})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.toml", "batch_size = = 3", "cannot be parsed"),
        ("c.yaml", "a: [1, 2", "cannot be parsed"),
        ("c.yaml", "- 1\n- 2\n", "holds a list; it must hold keys and values"),
        (
            "c.yaml",
            "embeding_dim: 8",
            "unknown key 'embeding_dim' in the configuration; did you mean embedding_dim?",
        ),
        ("c.yaml", "batch_size: many", "batch_size: input should be a valid integer"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        parse_arguments(["--config", str(tmp_path / name)])
    assert message in str(caught.value)


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("")
    assert parse_arguments(["--config", str(tmp_path / "c.yaml")]).config == TrainerConfig()


def test_help_lists_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_arguments(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert [name for name in TrainerConfig.model_fields if f"--{name}" not in shown] == []


def test_a_check_prints_the_resolved_configuration_without_importing_torch() -> None:
    code = (
        "import sys; from trainer.__main__ import main; "
        "code = main(['--check_config', '--batch_size', '7']); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["batch_size"] == 7


def test_an_invalid_configuration_exits_with_64_and_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "--check_config", "--seed", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith("error: seed: ")
    assert done.stderr.count("\n") == 1


def test_the_golden_preset_has_golden_trainings_defaults_for_keys_that_are_not_given() -> None:
    config = parse_arguments(["--preset", "golden", "--batch_size", "64"]).config
    assert (config.num_embeddings, config.embedding_dim, config.num_iterations) == (1024**2, 128, 1000)
    assert (config.dense_arch_layer_sizes, config.over_arch_layer_sizes) == ((64, 128), (64, 1))
    assert (config.learning_rate, config.dense_optimizer, config.batch_size) == (0.1, "adagrad", 64)
    assert make_config(config.model_dump()) == config


def test_a_preset_gives_way_to_another_spelling_of_a_key(tmp_path: Path) -> None:
    file = tmp_path / "trainer.yaml"
    file.write_text("preset: golden\nnum_embeddings_per_feature: [10, 20]\nglobal_batch_size: 256\n")
    config = parse_arguments(["--config", str(file), "--embedding_dim", "16"]).config
    assert (config.num_embeddings, config.num_embeddings_per_feature) == (None, (10, 20))
    assert (config.global_batch_size, config.dense_arch_layer_sizes) == (256, (64, 16))


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"preset: input should be 'golden', but it is 'silver'"):
        parse_arguments(["--preset", "silver"])


@pytest.mark.parametrize(
    ("settings", "ranks", "expected"),
    [
        ({"batch_size": 512}, 2, 1 / 1024),
        ({"global_batch_size": 4096}, 2, 1 / 4096),
        ({"table_optimizer": "adagrad", "batch_size": 100}, 1, 0.01),
        ({"table_optimizer": "adam"}, 2, 1e-4),
        ({"optimizer_eps": 1e-8}, 2, 1e-8),
    ],
)
def test_the_tables_epsilon_is_a_samples_share_of_the_mean_gradient_unless_it_is_given(
    settings: dict[str, Any], ranks: int, expected: float
) -> None:
    config = make_config(settings)
    assert config.table_eps(ranks) == expected
    assert config.dense_eps == settings.get("optimizer_eps", 1e-4)

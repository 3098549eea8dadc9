"""Which names and values count as secrets, and that they are hidden in texts."""

from __future__ import annotations

import base64
import hashlib
import random

import pytest

from cloudrec_contract.secret_values import HIDDEN, has_known_form, hidden, is_secret, secret_among

_DICE = random.Random(7)  # noqa: S311 - made-up keys, not keys


def _made_up(
    length: int, letters: str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
) -> str:
    return "".join(_DICE.choice(letters) for _ in range(length))


_HEX = "0123456789abcdef"
SECRETS = {
    "DATABASE_URL": "postgres://app:hunter22@db.example/ctr",
    "AZURE_STORAGE_SAS": f"?sv=2024-11-04&ss=b&sig={_made_up(43)}%3D",
    "GITHUB_PAT": "ghp_" + _made_up(36),
    "PGPASS": "correct7horse8battery",
    "SSH_KEY": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
    "ENCRYPTION_KEY": base64.b64encode(_DICE.randbytes(32)).decode(),
    "OPENAI_KEY": "sk-" + _made_up(48),
    "WANDB_KEY": _made_up(40, _HEX),
    "AUTHORIZATION": "Bearer" + _made_up(30),
    "SLACK_WEBHOOK": "https://hooks.slack.com/services/T000/B000/" + _made_up(24),
    "MY_SECRET": "x",
    "DB_PASSWORD": "x",
    "WANDB_API_KEY": "local",
    "HARMLESS": _made_up(40),
    "SOMETHING": _made_up(64, _HEX),
    "PLACE": "s3://AKIAIOSFODNN7EXAMPLE:abc/def",  # gitleaks:allow - AWS's own example
    "CONNECTION": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + _made_up(86) + "==",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0." + _made_up(43),
    "RUN_ID": "hf_" + _made_up(34),  # a known form, whatever the name
}
PLAIN = {
    "NCCL_DEBUG": "INFO",
    "NCCL_SOCKET_IFNAME": "=eth0,eth1",
    "SORT_KEY": "user_id",
    "PRIMARY_KEY": "impression",
    "PAD_TOKENIZER": "bert-base-uncased",
    "MAX_TOKENS": "2048",
    "TOKENIZERS_PARALLELISM": "false",
    "GIT_SHA": hashlib.sha1(b"x").hexdigest(),  # noqa: S324 - a commit's id
    "DATA_DIGEST": hashlib.sha256(b"x").hexdigest(),
    "RUN_ID": _made_up(32, _HEX),
    "HF_TOKEN_PATH": "/run/secrets/hf",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/secrets/eks.amazonaws.com/serviceaccount/token",
    "DATASET": "s3://a-bucket/criteo-2026/day-01/part-00000-of-00024.parquet",
    "IMAGE": "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/trainer:2026-11-26",
    "LAYERS": "512,256,128",
    "TITLE": "two words and 1 number that are together longer than thirty-two characters",
    "MODEL_SOURCE": "recommenders.models.deep_and_wide_v2:make_model",
    "ENDPOINT_HOST": "http://127.0.0.1:9000/one-long-path/with-several-parts/and-numbers-42",
    "EMPTY_SECRET": "",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_found_by_its_name_or_its_form(name: str) -> None:
    assert is_secret(name, SECRETS[name])


@pytest.mark.parametrize("name", PLAIN)
def test_an_ordinary_value_is_not_taken_for_a_secret(name: str) -> None:
    assert not is_secret(name, PLAIN[name])


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--batch_size", "64", "--wandb-api-key", "local"], "--wandb-api-key"),
        (["--wandb_api_key=local"], "--wandb_api_key"),
        (["--dataset_path", "s3://user:word@bucket/x"], "--dataset_path"),
        (["--verbose", "--name", "x", SECRETS["GITHUB_PAT"]], "an argument"),
        (["--verbose", "--learning_rate", "-0.1", "--token", "x"], "--token"),
        (["--batch_size", "64", "--max-tokens", "12", "train.py"], None),
        ([], None),
    ],
)
def test_a_secret_among_arguments_is_named_by_its_flag(words: list[str], flag: str | None) -> None:
    assert secret_among(words) == flag


def test_secrets_are_hidden_in_a_text_by_their_form_and_by_the_values_of_variables() -> None:
    environment = {
        "MY_PASSWORD": "correct horse",
        "HOME": "/root",
        "SHORT_SECRET": "ab",
        "GIT_SHA": "0123abcd",
    }
    text = (
        f"fatal: {SECRETS['DATABASE_URL']} refused correct horse; ab, /root, 0123abcd stay; "
        f"key {SECRETS['GITHUB_PAT']}, {SECRETS['SLACK_WEBHOOK']}"
    )
    assert hidden(text, environment) == (
        f"fatal: postgres://{HIDDEN}@db.example/ctr refused {HIDDEN}; ab, /root, 0123abcd stay; "
        f"key {HIDDEN}, {HIDDEN}"
    )


def test_what_was_hidden_has_no_secret_any_more() -> None:
    text = "\n".join(f"{name}={value}" for name, value in SECRETS.items())
    assert has_known_form(text)
    assert not has_known_form(hidden(text, {}))
    assert not [value for value in SECRETS.values() if len(value) > 5 and value in hidden(text, SECRETS)]

"""Bad notification settings, records of notifications, and files of variables."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.fuzz.inputs import BadInput, damaged, json_files, texts, values, words, yaml_files

_NOTIFY: dict[str, Any] = {
    "version": 1,
    "notify": {
        "webhook": "ML_HOOK",
        "slack": "SLACK_URL",
        "email": ["ml-team@example.com"],
        "email_from": "bot@example.com",
        "smtp": "127.0.0.1:1",
        "smtp_security": "starttls",
        "smtp_user": "bot",
        "smtp_password": "SMTP_PASSWORD",
        "events": ["failed", "budget"],
        "end_near": "30m",
    },
}
_NOTICE = {
    "key": "failed:2",
    "event": "failed",
    "at": 1.7e9,
    "text": "it failed",
    "cluster": "good",
    "run": "odd",
}
_OUTBOX: dict[str, Any] = {
    "known": ["failed:2"],
    "waiting": [{"notice": _NOTICE, "channel": "slack", "tries": 3, "due": 1.7e9, "why": "it answers 503"}],
    "done": [
        {
            "at": 1.7e9,
            "key": "failed:1",
            "event": "failed",
            "run": "odd",
            "channel": "slack",
            "tries": 9,
            "why": "x",
        }
    ],
    "problems": [{"channel": "webhook", "why": "ML_HOOK is empty"}],
    "facts": {"state": "FAILED"},
}
# A port of this machine that refuses, so that nothing is sent and no one is waited for.
_URLS = [
    "http://127.0.0.1:1/x",
    "https://127.0.0.1:1",
    "http://[::1",
    "http://127.0.0.1:99999/",
    "127.0.0.1",
    "",
]
_LINES = b"OMP_NUM_THREADS=1\n# a comment\nBATCHES=100\n\nNAME=a b=c\n"


@st.composite
def notify(draw: st.DrawFn) -> BadInput:
    """The section `notify` of a spec, its secrets, and the record of what was sent."""
    commands = [
        ("notify", "test"),
        ("notify", "status"),
        ("notify", "status", "odd"),
        ("up", "local", "--dry-run"),
    ]
    files = {"here/cloudrec.yaml": draw(yaml_files(_NOTIFY))}
    if draw(st.booleans()):
        files["home/runs/odd/notify.json"] = draw(json_files(_OUTBOX))
    urls = st.one_of(st.sampled_from(_URLS), words)
    given = {name: draw(urls) for name in ("ML_HOOK", "SLACK_URL", "SMTP_PASSWORD") if draw(st.booleans())}
    return BadInput(area="notify", command=draw(st.sampled_from(commands)), environment=given, files=files)


@st.composite
def env_files(draw: st.DrawFn) -> BadInput:
    """A file of variables, of which some are references to secrets."""
    lines = draw(st.lists(st.one_of(texts, st.builds("{}={}".format, texts, values)), max_size=5))
    made = "\n".join(lines).encode("utf-8", "surrogatepass")
    files = {
        "here/script.py": b"print()\n",
        "here/train.env": draw(st.one_of(damaged(_LINES), st.just(_LINES + made), st.just(made))),
    }
    command = ["train", "script.py", "--cluster", "good", "--nproc-per-node", "1", "--env-file", "train.env"]
    for option in draw(st.lists(st.sampled_from(("--env", "--secret", "--env-file")), max_size=2)):
        command += [option, draw(words)]
    return BadInput(area="env-files", command=(*command, "--dry-run"), files=files)

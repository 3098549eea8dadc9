"""Recognises secrets by the names and values of variables, flags and settings, and hides them in texts.

Variables, flags and settings of a run are written to its files, to manifests and to process arguments, so a
secret among them can be read by others. Three signs are used:

- a value with the form that a well-known service gives its keys, or a URL with a password or a signature;
- a name that only secrets have, such as *_PASSWORD or *_TOKEN, with any value;
- a name that secrets often have, such as *_KEY, or any other name, with a value that looks random.

A name that ends in _ID, _SHA, _PATH and the like is trusted, unless the value has the form of a known key.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HIDDEN = "[hidden]"

# The forms that vendors document for their keys, or that GitHub's and AWS's own scanners search for.
_KNOWN = re.compile(
    r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b"  # AWS: access key ids
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{20,}"
    r"|\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[A-Za-z0-9_-]{40,}"
    r"|\bxox[abeprs]-[A-Za-z0-9-]{10,}|\bxapp-[A-Za-z0-9-]{10,}|\bdapi[0-9a-f]{32}\b|\bAIza[A-Za-z0-9_-]{35}"
    r"|\bya29\.[A-Za-z0-9_-]{20,}|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]*\.?[A-Za-z0-9_-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|(?:AccountKey|SharedAccessKey)=[A-Za-z0-9+/=]{20,}|[?&](?:sig|X-Amz-Signature|X-Goog-Signature)=[^&\s]{8,}"
    r"|https://hooks\.slack\.com/(?:services|workflows)/[^\s\"']+"
    r"|https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/[^\s\"']+|https://[\w.-]+\.webhook\.office\.com/[^\s\"']+"
)
_USERINFO = re.compile(r"(?<=://)[^/\s:@\"']+:[^/\s@\"']+(?=@)")
_STRONG_NAME = re.compile(
    r"SECRET|PASSWORD|PASSWD|PASSPHRASE|TOKEN(?!IZ)|CREDENTIAL|ACCOUNT_?KEY|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY"
    r"|CONNECTION_?STRING|(^|_)BEARER(_|$)",
    re.IGNORECASE,
)
_WEAK_NAME = re.compile(
    r"KEY$|PASS$|(^|_)(PAT|SAS|AUTH|AUTHORIZATION|COOKIE|SIGNATURE|WEBHOOK|DSN|PWD)(_|$)", re.IGNORECASE
)
# A name with such an ending is that of a file, a place, a number or a digest, even if it contains TOKEN.
_NO_SECRET = re.compile(
    r"(^|_)(FILE|PATH|DIR|FOLDER|URI|URL|ENDPOINT|NAME|ID|UUID|MODE|PARALLELISM|TOKENS|LENGTH|SIZE|COUNT"
    r"|SHA\d*|HASH|DIGEST|CHECKSUM|COMMIT|REVISION|VERSION)$",
    re.IGNORECASE,
)
_RANDOM = re.compile(r"[A-Za-z0-9+/=_.~-]+")
_WEAK_LENGTH = 12
_LENGTH = 32
_BITS = (
    3.0  # of Shannon entropy a character; English words have about 3 over their few letters, but no digits
)
_LEAST_HIDDEN = 6  # characters: hiding a shorter value would hide common words, too


def is_secret(name: str, value: str) -> bool:
    """Return whether a value looks like a secret, by its form or by the name of what holds it."""
    name = name.lstrip("-").replace("-", "_").replace(".", "_")
    if not value:
        return False
    if has_known_form(value):
        return True
    if _NO_SECRET.search(name):
        return False
    if _STRONG_NAME.search(name):
        return True
    return _looks_random(value, _WEAK_LENGTH if _WEAK_NAME.search(name) else _LENGTH)


def has_known_form(text: str) -> bool:
    """Return whether a text contains a key of a well-known service, or a URL with a password or signature."""
    return bool(_KNOWN.search(text) or _USERINFO.search(text))


def secret_among(words: Iterable[str]) -> str | None:
    """Return the first flag that holds a secret, as `--name`, or a word itself if no flag is before it.

    Args:
        words: a command line's, as `--name VALUE` or `--name=VALUE`.
    """
    flag = ""
    for word in words:
        name, equals, value = word.partition("=")
        if word.startswith("-") and equals:
            flag = ""
            if is_secret(name, value):
                return name
        elif word.startswith("-") and not has_known_form(word):
            flag = word
        else:
            if is_secret(flag, word) if flag else has_known_form(word):
                return flag or "an argument"
            flag = ""
    return None


def hidden(text: str, environment: Mapping[str, str]) -> str:
    """Return a text without the secrets in it: those of known form, and the values of secret variables.

    Args:
        text: the text.
        environment: variables, such as those of this process; their names decide which values are secret.
    """
    values = {
        value for name, value in environment.items() if len(value) >= _LEAST_HIDDEN and is_secret(name, value)
    }
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return _USERINFO.sub(HIDDEN, _KNOWN.sub(HIDDEN, text))


def _looks_random(value: str, least: int) -> bool:
    """Return whether a value is one long word with digits and letters that are mixed as in a random one."""
    if len(value) < least or not _RANDOM.fullmatch(value) or _is_place(value):
        return False
    if not re.search(r"\d", value) or not re.search(r"[A-Za-z]", value):
        return False
    return _entropy(value) >= _BITS


def _is_place(value: str) -> bool:
    """Return whether a value is a path, an image or a number: its parts are short."""
    longest = max(map(len, re.split(r"[/._=-]", value)))
    return longest < min(20, len(value) * 2 // 3)


def _entropy(value: str) -> float:
    counts = Counter(value)
    return -sum(each / len(value) * math.log2(each / len(value)) for each in counts.values())

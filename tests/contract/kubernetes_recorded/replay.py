"""Sends the recorded script to an API server, and reads from each reply what is compared."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from cloudrec_sandbox.kubernetes.joined.connection import Answer, Connection

FILE = Path(__file__).with_name("recorded.json")
PATIENCE_S = 60.0
_NAMED = re.compile(r"\{(\w+)\.(uid|version)\}")
_LONG = re.compile(r"\{(\w)\*(\d+)\}")  # a letter many times
_TEXT = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
_CHANGING = ("uid", "controller-uid", "batch.kubernetes.io/controller-uid")
Kept = dict[str, dict[str, str]]


def play(connection: Connection, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send all requests in order; what of each reply is compared."""
    kept: Kept = {}
    return [_seen(step, _ask(connection, step, kept), kept) for step in steps]


def _ask(connection: Connection, step: dict[str, Any], kept: Kept) -> Answer:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = connection.ask(
            step["method"],
            _filled(step["path"], kept),
            body=step["raw"].encode() if "raw" in step else _filled(step.get("body"), kept),
            kind=step.get("type", "application/json"),
            query=_filled(step.get("query", {}), kept),
            headers=step.get("headers"),
        )
        if answer.status == step.get("until", answer.status) or time.monotonic() > deadline:
            return answer
        time.sleep(0.02)


def _filled(value: Any, kept: Kept) -> Any:
    if isinstance(value, str):
        if found := _LONG.fullmatch(value):
            return found[1] * int(found[2])
        return _NAMED.sub(lambda named: kept[named[1]][named[2]], value)
    if isinstance(value, dict):
        return {key: _filled(each, kept) for key, each in value.items()}
    return [_filled(each, kept) for each in value] if isinstance(value, list) else value


def _seen(step: dict[str, Any], answer: Answer, kept: Kept) -> dict[str, Any]:
    document = answer.body if isinstance(answer.body, dict) else {}
    metadata = document.get("metadata") or {}
    if "keep" in step and "uid" in metadata:
        kept[step["keep"]] = {"uid": metadata["uid"], "version": metadata["resourceVersion"]}
    seen: dict[str, Any] = {"status": answer.status}
    if document.get("kind") == "Status" and answer.status >= 400:
        seen["reason"] = document.get("reason", "")
        causes = (document.get("details") or {}).get("causes") or ()
        if fields := sorted({each.get("field", "") for each in causes if each.get("field")}):
            seen["fields"] = fields
    elif "show" in step:
        seen["shown"] = {path: _shown(_at(document, path)) for path in step["show"]}
    warnings = [
        text for name, value in answer.headers if name.lower() == "warning" for text in _TEXT.findall(value)
    ]
    return {**seen, "warnings": sorted(warnings)} if warnings else seen


def _at(document: Any, path: str) -> Any:
    if path == "names":
        listed = {each["metadata"]["name"] for each in document.get("items") or ()}
        return sorted(name for name in listed if not name.endswith(".crt") and not name.startswith("made-"))
    found = document
    for name in path.split("."):
        if isinstance(found, list):
            found = found[int(name)] if int(name) < len(found) else None
        else:
            found = (found or {}).get(name)
    if path.endswith("managedFields") and found:
        # Their order depends on whether two changes are of one second.
        return sorted(found, key=lambda entry: (entry["manager"], entry["operation"]))
    return found


def _shown(value: Any) -> Any:
    """Return a value without what differs between two runs on one server."""
    if isinstance(value, dict):
        return {
            key: "*" if key in _CHANGING else _shown(each) for key, each in value.items() if key != "time"
        }
    return [_shown(each) for each in value] if isinstance(value, list) else value

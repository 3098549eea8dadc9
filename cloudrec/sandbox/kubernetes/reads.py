"""Get and list: lists in pages, each list as of one version."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import secrets
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec.sandbox.http import Reply
from cloudrec.sandbox.kubernetes import errors, selectors

if TYPE_CHECKING:
    from cloudrec.sandbox.kubernetes.call import Call
    from cloudrec.sandbox.kubernetes.resources import Resource
    from cloudrec.sandbox.kubernetes.table import Entry

_JSON = (("Content-Type", "application/json"),)
_KEPT = 64
_PACKED_FROM = 128 * 1024  # bytes of a list that is compressed for those who take it so
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You must start a new "
    "list without the continue parameter."
)


class Pages:
    """The rests of lists that were read in part; the oldest are forgotten."""

    def __init__(self) -> None:
        self._rests: OrderedDict[str, tuple[int, list[Entry]]] = OrderedDict()

    def keep(self, version: int, rest: list[Entry]) -> str:
        """Keep a rest; what gets it back."""
        name = secrets.token_hex(8)
        self._rests[name] = (version, rest)
        while len(self._rests) > _KEPT:
            self._rests.popitem(last=False)
        token = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": name}).encode()
        return base64.urlsafe_b64encode(token).decode().rstrip("=")

    def take(self, token: str) -> tuple[int, list[Entry]]:
        """The version and the rest; refused with 410 where it is forgotten."""
        try:
            name = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))["start"]
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            raise errors.bad_request("continue key is not valid: it is none of this server's") from error
        if name not in self._rests:
            raise errors.expired(_TOO_OLD)
        return self._rests[name]

    def clear(self) -> None:
        """Forget all."""
        self._rests.clear()


def get(call: Call) -> Reply:
    """One object."""
    return whole(call.resource, existing(call))


def existing(call: Call) -> Entry:
    """The object that the call names; refused where there is none."""
    place = (call.target.namespace or "", call.target.name)
    entry = call.store.table.get(call.resource.key, place)
    if entry is None:
        raise errors.not_found(call.resource.plural, call.resource.group, call.target.name)
    return entry


def whole(resource: Resource, entry: Entry, status: int = 200) -> Reply:
    """An object as an answer."""
    return Reply(status=status, headers=_JSON, body=entry.whole(resource))


def list_(call: Call) -> Reply:
    """All objects that the selectors mean, or a page of them."""
    query = call.query
    token, pages = query.get("continue", ""), call.world.pages
    if token:
        version, entries = pages.take(token)
    else:
        version, entries = call.store.table.version, selected(call)
    limit = _number(query.get("limit", ""))
    rest = entries[limit:] if limit else []
    reply = list_of(call.resource, entries[: limit or None], version, rest, pages)
    return _packed(reply) if "gzip" in call.request.lower.get("accept-encoding", "") else reply


def _packed(reply: Reply) -> Reply:
    if len(reply.body) <= _PACKED_FROM:
        return reply
    headers = (*reply.headers, ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))
    return replace(reply, headers=headers, body=gzip.compress(reply.body, compresslevel=1))


def selected(call: Call) -> list[Entry]:
    """The objects that a list is about."""
    query = call.query
    test = selectors.test_of(call.resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    entries = call.store.table.all(call.resource.key, call.target.namespace)
    return [entry for entry in entries if test(entry.obj)]


def list_of(
    resource: Resource,
    entries: list[Entry],
    version: int,
    rest: list[Entry] | None = None,
    pages: Pages | None = None,
) -> Reply:
    """A list as an answer, and where its rest is to be had."""
    metadata: dict[str, object] = {"resourceVersion": str(version)}
    if rest and pages:
        metadata |= {"continue": pages.keep(version, rest), "remainingItemCount": len(rest)}
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    shown = (entry.whole(resource) if resource.custom else entry.item(resource) for entry in entries)
    body = json.dumps(head).encode()[:-1] + b',"items":[' + b",".join(shown) + b"]}"
    return Reply(headers=_JSON, body=body)


def _number(text: str) -> int:
    if text and not text.isdigit():
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text or 0)

"""Get and list: lists in pages, all pages of a list as of one version."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import secrets
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec_sandbox.core.http import Reply
from cloudrec_sandbox.kubernetes.objects import errors, selectors

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.api.call import Call
    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.objects.table import Entry

_JSON = (("Content-Type", "application/json"),)
_KEPT = 64
_PACKED_FROM = 128 * 1024  # bytes; longer lists are compressed for clients that accept gzip
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You must start a new "
    "list without the continue parameter."
)


class Pages:
    """The remaining pages of lists; the oldest are forgotten."""

    def __init__(self) -> None:
        self._rests: OrderedDict[str, tuple[int, list[Entry]]] = OrderedDict()

    def keep(self, version: int, rest: list[Entry]) -> str:
        """Keep the rest of a list; return the token for it."""
        name = secrets.token_hex(8)
        self._rests[name] = (version, rest)
        while len(self._rests) > _KEPT:
            self._rests.popitem(last=False)
        token = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": name}).encode()
        return base64.urlsafe_b64encode(token).decode().rstrip("=")

    def take(self, token: str) -> tuple[int, list[Entry]]:
        """Return the version and the rest for a token; refused with 410 if it is forgotten."""
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
    """Return one object."""
    return whole(call.resource, existing(call))


def existing(call: Call) -> Entry:
    """Return the object that the call names; refused if there is none."""
    place = (call.target.namespace or "", call.target.name)
    entry = call.store.table.get(call.resource.key, place)
    if entry is None:
        raise errors.not_found(call.resource.plural, call.resource.group, call.target.name)
    return entry


def whole(resource: Resource, entry: Entry, status: int = 200) -> Reply:
    """Return a reply with an object."""
    return Reply(status=status, headers=_JSON, body=entry.whole(resource))


def list_(call: Call) -> Reply:
    """Return all objects that the selectors match, or a page of them."""
    query = call.query
    token, pages = query.get("continue", ""), call.world.pages
    if token:
        version, entries = pages.take(token)
    # The version comes first: a page belongs to the state of the first page, whatever has changed since.
    else:
        version, entries = call.store.table.version, selected(call)
    limit = max(0, _number(query.get("limit", "")))  # as in etcd, a negative one is none
    rest = entries[limit:] if limit else []
    reply = list_of(call.resource, entries[: limit or None], version, rest, pages)
    return _packed(reply) if "gzip" in call.request.lower.get("accept-encoding", "") else reply


def _packed(reply: Reply) -> Reply:
    if len(reply.body) <= _PACKED_FROM:
        return reply
    headers = (*reply.headers, ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))
    return replace(reply, headers=headers, body=gzip.compress(reply.body, compresslevel=1))


def selected(call: Call) -> list[Entry]:
    """Return the objects that a list selects."""
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
    """Return a reply with a list, and the token of its rest."""
    metadata: dict[str, object] = {"resourceVersion": str(version)}
    if rest and pages:
        metadata |= {"continue": pages.keep(version, rest), "remainingItemCount": len(rest)}
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    shown = (entry.whole(resource) if resource.custom else entry.item(resource) for entry in entries)
    body = json.dumps(head).encode()[:-1] + b',"items":[' + b",".join(shown) + b"]}"
    return Reply(headers=_JSON, body=body)


def _number(text: str) -> int:
    if text and not text.removeprefix("-").isdigit():
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text or 0)

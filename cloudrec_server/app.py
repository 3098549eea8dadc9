"""The server's HTTP interface."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from cloudrec_contract.safe_json import UnsafeJsonError, safe_json
from cloudrec_server.batching import Batcher, QueueFullError
from cloudrec_server.metrics import Metrics
from cloudrec_server.rows import RowsRefusedError
from cloudrec_server.scoring import NoItemsError, score_requests, users_of_requests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from starlette.requests import Request

    from cloudrec_server.scoring import Ready, Scored, Users
    from cloudrec_server.settings import ServerSettings
    from trainer.serving.live import LiveModel

_LOG = logging.getLogger("cloudrec_server")
_MOST_WAITING = 1024  # requests
_SCORE, _RETRIEVE = "/v1/score", "/v1/retrieve"
_MOST_ITEMS, _ITEMS = 1000, 10  # of a row: the limit, and without `k`


class _Refused(Exception):  # noqa: N818 - an answer, not an error of the server
    def __init__(self, status: int, message: str, remedy: str, **more: object) -> None:
        super().__init__(message)
        self.status = status
        self.content = {"error": {"message": message, "remedy": remedy, **more}}


class ScoringService:
    """What the routes answer with."""

    def __init__(self, live: LiveModel[Ready], settings: ServerSettings) -> None:
        self._live = live
        self._settings = settings
        self._metrics = Metrics()
        self._stopping = False
        self._metrics.step.set(live.served.trained.step)
        self._batcher: Batcher[Scored] = Batcher(
            self._score,
            threads=settings.threads,
            most_rows=settings.max_rows,
            most_waiting=_MOST_WAITING,
            wait_s=settings.max_batch_ms / 1000,
        )

        self._retriever: Batcher[Users] = Batcher(
            partial(users_of_requests, live),
            threads=settings.threads,
            most_rows=settings.max_rows,
            most_waiting=_MOST_WAITING,
            wait_s=settings.max_batch_ms / 1000,
        )

    def app(self) -> Starlette:
        """Return the application."""
        return Starlette(
            routes=[
                Route(_SCORE, partial(self._measured, _SCORE, self._answer_scores), methods=["POST"]),
                Route(_RETRIEVE, partial(self._measured, _RETRIEVE, self._answer_items), methods=["POST"]),
                Route("/v1/model", self._model, methods=["GET"]),
                Route("/healthz", self._health, methods=["GET"]),
                Route("/readyz", self._ready, methods=["GET"]),
                Route("/metrics", self._text, methods=["GET"]),
            ],
            exception_handlers={HTTPException: _of_framework, Exception: _of_bug},
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        polling = asyncio.create_task(self._poll())
        yield
        self._stopping = True
        polling.cancel()
        with suppress(asyncio.CancelledError):
            await polling
        for each in (self._batcher, self._retriever):
            await asyncio.to_thread(each.close)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._settings.poll_s)
            try:
                if await asyncio.to_thread(self._live.poll):
                    self._metrics.replaced.inc()
            except Exception:  # noqa: BLE001 - the served model stays
                _LOG.exception("looking for a newer version failed; it is tried again")
            self._metrics.step.set(self._live.served.trained.step)
            self._metrics.refused.set(self._live.refused is not None)

    def _score(self, requests: Sequence[Sequence[Mapping[str, Any]]]) -> list[Scored]:
        made = score_requests(self._live, requests)
        self._metrics.batches.observe(sum(len(each.scores) for each in made))
        return made

    async def _measured(self, path: str, answer: Any, request: Request) -> Response:  # noqa: ANN401 - a coroutine function
        started = time.perf_counter()
        try:
            response: Response = await answer(request)
        except _Refused as refused:
            response = JSONResponse(refused.content, refused.status)
            if refused.status == 503:  # noqa: PLR2004 - HTTP's
                response.headers["Retry-After"] = "1"
        self._metrics.requests.labels(path, str(response.status_code)).inc()
        self._metrics.seconds.labels(path).observe(time.perf_counter() - started)
        return response

    async def _answer_scores(self, request: Request) -> Response:
        rows = self._rows(await self._document(request), {"rows"})
        scored = await self._answered(self._batcher, rows)
        self._metrics.rows.inc(len(rows))
        return JSONResponse({"version": scored.version, "step": scored.step, "scores": scored.scores})

    async def _answer_items(self, request: Request) -> Response:
        document = await self._document(request)
        rows = self._rows(document, {"rows", "k"})
        count = document.get("k", _ITEMS)
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_ITEMS:
            raise _Refused(
                422, f"k is {str(count)[:40]!r}; it must be a number from 1 to {_MOST_ITEMS}", "correct it"
            )
        try:
            users: Users = await self._answered(self._retriever, rows)
        except NoItemsError:
            raise _Refused(
                404,
                "the package has no items",
                "export a two_tower model with `python -m trainer.export --items DATA`",
            ) from None
        self._metrics.rows.inc(len(rows))
        items = await asyncio.to_thread(users.items, count)
        served = users.served
        return JSONResponse({"version": served.version, "step": served.trained.step, "items": items})

    async def _answered(self, batcher: Batcher[Any], rows: Sequence[Mapping[str, Any]]) -> Any:  # noqa: ANN401 - the batcher's
        try:
            return await batcher.answer(rows)
        except QueueFullError:
            raise _Refused(
                503, f"{_MOST_WAITING} requests wait, the limit", "send it again later, or to another server"
            ) from None
        except RowsRefusedError as refused:
            raise _Refused(
                422,
                f"{refused.problems[0].message}",
                "correct the rows; GET /v1/model has the columns",
                rows=[each.to_json() for each in refused.problems],
                more=refused.more,
            ) from None

    async def _document(self, request: Request) -> dict[str, Any]:
        """Return the JSON object of a request's body."""
        most = self._settings.max_body
        too_long = _Refused(
            413,
            f"the body is longer than {most:,} bytes, the limit",
            "send fewer rows, or raise --max-body-mb",
        )
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > most:
            raise too_long
        body = bytearray()
        try:
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise too_long
        except ClientDisconnect:
            raise _Refused(400, "the body ended early", "send it again") from None
        try:
            document = safe_json(bytes(body), most=most)
        except UnsafeJsonError as error:
            raise _Refused(400, f"the body is no JSON that is accepted: {error}", _FORM) from None
        if not isinstance(document, dict):
            raise _Refused(422, f"the body holds a {type(document).__name__}, not an object", _FORM)
        return document

    def _rows(self, document: dict[str, Any], keys: set[str]) -> list[dict[str, Any]]:
        rows = document.get("rows")
        if unknown := sorted(document.keys() - keys):
            raise _Refused(422, f"the body has the key {unknown[0][:40]!r}, which is not known", _FORM)
        if not isinstance(rows, list) or not rows:
            found = "missing" if rows is None else "empty" if rows == [] else f"a {type(rows).__name__}"
            raise _Refused(422, f"rows is {found}; it must be a list with one row at least", _FORM)
        if len(rows) > self._settings.max_rows:
            raise _Refused(
                413,
                f"rows has {len(rows):,} rows; {self._settings.max_rows:,} is the limit",
                "send fewer rows, or raise --max-rows",
            )
        wrong = [place for place, each in enumerate(rows) if not isinstance(each, dict)]
        if wrong:
            named = [
                {"row": row, "column": None, "message": f"row {row} is no object of columns"}
                for row in wrong[:20]
            ]
            raise _Refused(
                422, f"row {wrong[0]} is a {type(rows[wrong[0]]).__name__}, not an object", _FORM, rows=named
            )
        return rows

    async def _model(self, _request: Request) -> Response:
        served, refused = self._live.served, self._live.refused
        trained = served.trained
        columns = [
            {
                "name": each.name,
                "type": each.use,
                "list": each.is_list,
                **({} if each.separator is None else {"separator": each.separator}),
            }
            for each in served.ready.encoder.columns
        ]
        encoding = None if trained.vocabulary is None else trained.vocabulary.encoding.digest
        return JSONResponse(
            {
                "version": served.version,
                "step": trained.step,
                "model": trained.shape.model,
                "tasks": list(trained.shape.tasks),
                "quantization": trained.quantization,
                "encoding_digest": encoding,
                "columns": columns,
                "items": None if trained.items is None else len(trained.items.ids),
                "refused": None
                if refused is None
                else {"version": refused.version, "reason": refused.reason},
            }
        )

    async def _health(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _ready(self, _request: Request) -> Response:
        return PlainTextResponse("stopping\n", 503) if self._stopping else PlainTextResponse("ready\n")

    async def _text(self, _request: Request) -> Response:
        return Response(self._metrics.text(), media_type=CONTENT_TYPE_LATEST)


_FORM = 'send {"rows": [{"COLUMN": VALUE, ...}, ...]}; GET /v1/model has the columns'


async def _of_framework(_request: Request, error: Exception) -> Response:
    """Return the framework's refusals, of an unknown path or method, as JSON."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for them alone
    content = {"error": {"message": error.detail, "remedy": "POST /v1/score, or GET /v1/model"}}
    return JSONResponse(content, error.status_code, headers=error.headers)


async def _of_bug(_request: Request, error: Exception) -> Response:
    _LOG.error("a request failed", exc_info=error)
    return JSONResponse({"error": {"message": "the server failed", "remedy": "its log has the reason"}}, 500)

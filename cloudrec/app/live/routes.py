"""The pages of `cloudrec ui` and their addresses."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from cloudrec.app.live.cluster_watch import ClusterWatch
from cloudrec.app.live.compare_page import MOST, compare_values
from cloudrec.app.live.followers import Followers
from cloudrec.app.live.home_page import RunFilter, by_price, home_values, spent_of, whole_number
from cloudrec.app.live.index import RunIndex, signature
from cloudrec.app.live.operations import Operations
from cloudrec.app.live.security import Doorkeeper
from cloudrec.app.run.manage import stop_run
from cloudrec.errors import CloudrecError, UsageError
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.observe.page.details import run_details
from cloudrec.observe.page.ranks import SHOWN
from cloudrec.observe.page.render import asset, render
from cloudrec.observe.page.report import render_report
from cloudrec.observe.runs import find_run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.requests import Request

    from cloudrec.app.context import AppContext
    from cloudrec.app.live.security import Secrets
    from cloudrec.app.run.launch import PreparedRun


_SCRIPT = "text/javascript"
_ASSETS = {"page.css": "text/css", "charts.js": _SCRIPT, "page.js": _SCRIPT, "icon.svg": "image/svg+xml"}
_LONGEST_FORM = 4096  # bytes
_LINES = 2000  # of a log that a page gets
_EVERY_S = 1.0  # a page learns of a change
_AGAIN_S = 10.0  # the page of a run that is not over is renewed, though its files are as before
_FIRST_ANSWER_S = 0.4  # the first page waits so long for the clouds


class LivePages:
    """What the addresses answer with."""

    def __init__(self, app: AppContext, keys: Secrets) -> None:
        self._app = app
        self._keys = keys
        self._index = RunIndex(app)
        self._clusters = ClusterWatch(app)
        self._followers = Followers()
        self._operations = Operations()
        self._assets = {name: hashlib.sha256(asset(name).encode()).hexdigest()[:12] for name in _ASSETS}
        self._closing = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def starlette(self) -> Starlette:
        """Return the application."""
        return Starlette(
            routes=[
                Route("/", self._first(self._home)),
                Route("/runs/{name}", self._first(self._run)),
                Route("/runs/{name}/report", self._first(self._report)),
                Route("/runs/{name}/stop", self._stop, methods=["GET", "POST"]),
                Route("/runs/{name}/resume", self._resume, methods=["GET", "POST"]),
                Route("/runs/{name}/log", self._log),
                Route("/compare", self._first(self._compare)),
                Route("/feed", self._feed),
                Route("/assets/{version}/{name}", self._asset),
            ],
            middleware=[Middleware(Doorkeeper, keys=self._keys)],
            exception_handlers={CloudrecError: self._refused, HTTPException: self._not_found},
        )

    def begin(self) -> None:
        """Read the runs and ask the clouds, while the browser starts."""
        self._loop = asyncio.get_running_loop()
        self._clusters.now()
        threading.Thread(target=self._index.look_at_all, name="all runs", daemon=True).start()

    def close(self) -> None:
        """End the streams and the threads; any thread, or a signal handler, may call it."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._closing.set)
        self._clusters.close()
        self._index.close()

    def _first(self, handle: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """Make a page before the runs that are not on it are read."""

        def handle_first(request: Request) -> Response:
            with self._index.making_a_page():
                return handle(request)

        return handle_first

    def _home(self, request: Request) -> Response:
        wish = RunFilter.of(request.query_params)
        now = self._clusters.now(patience_s=_FIRST_ANSWER_S)
        values = home_values(self._index, now, wish)
        return self._page(
            "home.html.j2",
            **values,
            events=[(cluster, self._app.journal.events(cluster.name)[-12:]) for cluster in now.clusters],
            spent_of=spent_of,
            by_price=by_price,
            address=lambda **changed: f"/?{urlencode(wish.query(**changed))}",
            most=MOST,
            feed="/feed",
        )

    def _run(self, request: Request) -> Response:
        run = self._find(request)
        view = self._index.view(run)
        feed = f"/feed?run={quote(run.name, safe='')}"
        if view.launcher is None:  # its spec is damaged
            return self._page("damaged.html.j2", view=view, feed=feed)
        file, lock = self._index.curves(run)
        with lock:
            details = run_details(run, view, metrics=file, kept=self._keeper_events(run.name))
        return self._page(
            "run.html.j2",
            details=details,
            operation=self._operations.of(run.name),
            ranks=min(view.world_size or 1, SHOWN),
            path=f"/runs/{quote(run.name, safe='')}",
            feed=feed,
        )

    def _keeper_events(self, name: str) -> list[tuple[float, str]]:
        """Return what keepers did with a run."""
        keepers = [cluster.keeper for cluster in self._clusters.now().clusters if cluster.keeper is not None]
        return [(event.at, event.text) for keeper in keepers for event in keeper.events if event.run == name]

    def _report(self, request: Request) -> Response:
        run = self._find(request)
        text = render_report(run, cost_usd=self._index.view(run).cost_usd)
        name = f"attachment; filename*=UTF-8''{quote(run.name, safe='')}.html"
        return Response(text, media_type="text/html", headers={"Content-Disposition": name})

    def _compare(self, request: Request) -> Response:
        names = request.query_params.getlist("run")
        values = compare_values(self._app, self._index, names)
        return self._page("compare.html.j2", **values, feed="")

    async def _stop(self, request: Request) -> Response:
        run = await run_in_threadpool(self._find, request)
        if request.method == "GET":
            view = await run_in_threadpool(self._index.view, run)
            return self._question(run, "stop", view=view, plan=None)
        return await self._begin(request, run, "stopping", lambda: stop_run(self._app, run.name))

    async def _resume(self, request: Request) -> Response:
        from cloudrec.app.run.launch import resume  # noqa: PLC0415 - imports what launches runs

        run = await run_in_threadpool(self._find, request)
        if request.method == "GET":
            found: list[PreparedRun] = []

            def look(prepared: PreparedRun) -> bool:
                found.append(prepared)
                return False

            await run_in_threadpool(resume, self._app, run.name, decide=look)
            view = await run_in_threadpool(self._index.view, run)
            return self._question(run, "resume", view=view, plan=found[0])
        return await self._begin(
            request, run, "resuming", lambda: resume(self._app, run.name, decide=lambda _plan: True)
        )

    def _question(self, run: RunFolder, what: str, **values: Any) -> Response:  # noqa: ANN401 - a template's
        return self._page(
            "question.html.j2",
            what=what,
            path=f"/runs/{quote(run.name, safe='')}",
            form=self._keys.form,
            feed="",
            **values,
        )

    async def _begin(self, request: Request, run: RunFolder, what: str, do: Callable[[], object]) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _LONGEST_FORM:
                raise HTTPException(413)
        given = parse_qs(body.decode("utf-8", errors="replace")).get("form", [""])[0]
        if not self._keys.is_form(given):
            raise HTTPException(403)
        self._operations.begin(run.name, what, do, then=lambda: self._index.forget(run.name))
        return RedirectResponse(f"/runs/{quote(run.name, safe='')}", 303)

    async def _feed(self, request: Request) -> Response:
        """Report to a page that what it shows has changed."""
        name = request.query_params.get("run")
        run = await run_in_threadpool(find_run, self._app.home.runs, name) if name else None
        return _stream(self._changes(request, run))

    async def _changes(self, request: Request, run: RunFolder | None) -> AsyncIterator[str]:
        yield "retry: 2000\n\n"
        before, sent_at = await run_in_threadpool(self._state_of, run), time.monotonic()
        while not self._closing.is_set() and not await request.is_disconnected():
            await self._wait(_EVERY_S)
            now = await run_in_threadpool(self._state_of, run)
            is_old = time.monotonic() - sent_at > _AGAIN_S and now[1]
            if now != before or is_old:
                before, sent_at = now, time.monotonic()
                yield "event: changed\ndata: {}\n\n"
            else:
                yield ": nothing\n\n"

    def _state_of(self, run: RunFolder | None) -> tuple[object, bool]:
        """Return what a page depends on, and whether time alone changes it."""
        if run is not None:
            view = self._index.known().get(run.name)
            operation = self._operations.of(run.name)
            return (signature(run), operation, view.state if view else None), not (view and view.is_over)
        known = self._index.known()
        alive = [RunFolder(path=self._app.home.run(name)) for name, view in known.items() if not view.is_over]
        folder = self._app.home.runs
        at = folder.stat().st_mtime_ns if folder.is_dir() else 0
        clusters = self._clusters.now()
        return (at, len(known), clusters.at, [signature(each) for each in alive]), bool(alive)

    async def _log(self, request: Request) -> Response:
        """Send the lines of a rank, and then those that come."""
        run = await run_in_threadpool(self._find, request)
        search = request.query_params.get("search", "")[:200]
        rank = whole_number(request.query_params.get("rank", "0"))
        follower = await run_in_threadpool(self._followers.of, run, rank)

        async def lines() -> AsyncIterator[str]:
            yield "retry: 3000\n\nevent: begin\ndata: {}\n\n"
            seen = 0
            while not self._closing.is_set() and not await request.is_disconnected():
                over = follower.is_over  # before the read, so that the read after it finds everything
                found, seen = await run_in_threadpool(follower.after, seen, search=search, most=_LINES)
                if found:
                    yield f"data: {json.dumps(found)}\n\n"
                if over:
                    yield f"event: over\ndata: {json.dumps(follower.problem)}\n\n"
                    return
                await self._wait(0.3)

        return _stream(lines())

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._closing.wait(), seconds)
        except TimeoutError:
            return

    def _asset(self, request: Request) -> Response:
        name, version = request.path_params["name"], request.path_params["version"]
        if self._assets.get(name) != version:
            raise HTTPException(404)
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return Response(asset(name), media_type=_ASSETS[name], headers=headers)

    def _find(self, request: Request) -> RunFolder:
        return find_run(self._app.home.runs, request.path_params["name"])

    def _page(self, template: str, *, status: int = 200, **values: Any) -> Response:  # noqa: ANN401 - a template's
        places: Mapping[str, str] = {
            name: f"/assets/{version}/{name}" for name, version in self._assets.items()
        }
        return HTMLResponse(render(template, assets=places, **values), status)

    def _refused(self, _request: Request, error: Exception) -> Response:
        remedy = error.remedy if isinstance(error, CloudrecError) else ""
        status = 404 if isinstance(error, UsageError) and "no run" in str(error) else 409
        return self._page("error.html.j2", message=str(error), remedy=remedy or "", status=status, feed="")

    def _not_found(self, _request: Request, error: Exception) -> Response:
        code = error.status_code if isinstance(error, HTTPException) else 500
        said = {403: "This form is not of this page: open it again.", 404: "There is no such page."}
        message = said.get(code, f"The request was refused ({code}).")
        return self._page("error.html.j2", message=message, remedy="", status=code, feed="")


def _stream(events: AsyncIterator[str]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

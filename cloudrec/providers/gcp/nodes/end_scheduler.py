"""Cloud Scheduler's API, by REST calls.

Cloud Scheduler is not in each region. A cluster elsewhere has its jobs in the first location, by name, of its
continent (`end_jobs.location`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from google.api_core import exceptions as api

from cloudrec.providers.gcp.nodes import end_jobs
from cloudrec.providers.gcp.nodes.end_jobs import CHANGED

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.nodes.end_jobs import Job

SERVICE = "cloudscheduler"
_PAGE = 500  # jobs; the limit of one page


class SchedulerJobs:
    """The jobs of a project in one location."""

    def __init__(self, gcp: Gcp) -> None:
        self.gcp = gcp

    def listed(self) -> list[Job]:
        """Return the jobs, also those of others; Forbidden if the API is disabled."""
        return self._rows(f"/v1/{self.folder()}", "jobs")

    def put(self, there: Job | None, wanted: Job, is_kept: Callable[[Job], bool]) -> None:
        """Create a job, or change it in place; one that is not to be kept is made again.

        The API does not promise that a change ends the repetitions of a call, and these would end the nodes
        that a cluster with a new end has.
        """
        if there is not None and not is_kept(there):
            self.delete(there)
            there = None
        if there is None:
            try:
                self.create(wanted)
            except api.Conflict:  # a list may not show yet what was created
                self._patch(wanted)
        elif any(there.get(name) != wanted[name] for name in CHANGED):
            self._patch(wanted)

    def create(self, job: Job) -> None:
        """Create a job; a second one of its name is refused."""
        folder = job["name"].rpartition("/")[0]
        self.gcp.send(SERVICE, "POST", f"/v1/{folder}", job)

    def _patch(self, wanted: Job) -> None:
        path = f"/v1/{wanted['name']}?updateMask={','.join(CHANGED)}"
        self.gcp.send(SERVICE, "PATCH", path, {name: wanted[name] for name in CHANGED})

    def delete(self, job: Job) -> None:
        """Delete a job."""
        with suppress(api.NotFound):  # a list may still show what was deleted
            self.gcp.send(SERVICE, "DELETE", f"/v1/{job['name']}")

    def folder(self) -> str:
        """Return the path of the jobs, which this process decides once; Forbidden if the API is disabled."""
        key = "scheduler location"
        if key not in self.gcp.cache:
            self.gcp.cache[key] = self._place()
        return f"projects/{self.gcp.project}/locations/{self.gcp.cache[key]}/jobs"

    def _place(self) -> str:
        url, region = f"/v1/projects/{self.gcp.project}/locations", self.gcp.region
        try:
            self.gcp.send(SERVICE, "GET", f"{url}/{region}/jobs?pageSize=1")
        except (api.BadRequest, api.NotFound):  # Cloud Scheduler is not in each region
            return end_jobs.location(region, self.offered())
        return region

    def offered(self) -> list[str]:
        """Return the locations of Cloud Scheduler, where Workflows is looked for, too."""
        url = f"/v1/projects/{self.gcp.project}/locations"
        return [row["locationId"] for row in self._rows(url, "locations")]

    def _rows(self, url: str, items: str) -> list[Job]:
        rows, token = list[Any](), ""
        while True:
            query = f"?pageSize={_PAGE}{f'&pageToken={token}' if token else ''}"
            answer = self.gcp.send(SERVICE, "GET", f"{url}{query}")
            rows += answer.get(items, ())
            token = answer.get("nextPageToken", "")
            if not token:
                return rows

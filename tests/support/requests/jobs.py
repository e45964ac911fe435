"""Requests about jobs to a server whose executor a test replaces."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import httpx

from storage.tables import accounts
from tests.support.executors.fake import SwitchedExecutor
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running

ASYNC = {"Prefer": "respond-async"}


class Site:
    """A server whose executor a test replaces, with an account of 50 credits."""

    def __init__(self, server: Running, executor: SwitchedExecutor) -> None:
        self.server = server
        self.executor = executor
        self.usual = executor.executor
        self.key = server.account(50)

    def submit(self, path: str = "/convert", status: int = 202, **fields: Any) -> Any:
        """Sends a request that is to be processed in the background. Returns the job."""
        headers = {**ASYNC, **fields.pop("headers", {})}
        data = {"output_format": "png", **fields} if path.startswith("/convert") else fields
        files = {"file": ("photo.jpg", image())}
        response = self.server.request("POST", path, self.key, data=data, files=files, headers=headers)
        assert response.status_code == status, response.text
        return response.json()["data"]

    def post(self, headers: Mapping[str, str] = MappingProxyType({}), **fields: str) -> httpx.Response:
        """Asks for a conversion of a photo, by default to PNG."""
        data = {"output_format": "png", **fields}
        return self.send("POST", "/convert", files={"file": ("photo.jpg", image())}, data=data, headers=headers)

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.server.request(method, path, self.key, **options)

    def get(self, job: Any, wait: int | None = None) -> Any:
        headers = {} if wait is None else {"Prefer": f"wait={wait}"}
        response = self.send("GET", f"/jobs/{job['job_id']}", headers=headers)
        assert response.status_code == 200, response.text
        return response.json()["data"]

    def end(self, job: Any) -> Any:
        return self.send("DELETE", f"/jobs/{job['job_id']}").json()["data"]

    def credits(self) -> tuple[int, int]:
        """The credits of the account that are left, and those that are held."""
        found = self.server.database.run_blocking(accounts.get, self.account_id())
        return found.credits_remaining, found.credits_held

    def account_id(self) -> str:
        email = self.send("GET", "/account").json()["data"]["email"]
        account = self.server.database.run_blocking(accounts.find, email)
        assert account is not None
        return account.id

    def blobs(self) -> set[str]:
        return {path.name for path in (self.server.data_dir / "blobs").iterdir()}

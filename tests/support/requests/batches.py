"""Requests for batches."""

from typing import Any

from tests.support.servers.in_process import Running


def create(server: Running, key: str = "", target: str = "png") -> str:
    response = server.request("POST", "/batch", key, json={"output_format": target})
    assert response.status_code == 200, response.text
    return str(response.json()["data"]["batch_id"])


def add(server: Running, batch: str, key: str, *contents: bytes) -> list[str]:
    return [server.upload(content, path=f"/batch/{batch}/files", key=key)["file_id"] for content in contents]


def convert(server: Running, batch: str, key: str, ids: list[str], target: str = "png", **more: Any) -> Any:
    body = {"file_ids": ids, "output_format": target}
    return server.request("POST", f"/batch/{batch}/convert", key, json=body, **more)


def known(server: Running, batch: str, key: str) -> Any:
    response = server.request("GET", f"/batch/{batch}", key)
    assert response.status_code == 200
    return response.json()["data"]


def counts(data: dict[str, Any]) -> tuple[str, int, int, int, int]:
    return data["status"], data["total"], data["pending"], data["processed"], data["failed"]

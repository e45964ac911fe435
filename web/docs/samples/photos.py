"""Writes a JPEG beside each photo, four at a time."""

import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

WAITS = (1, 2, 4, 8, 16, 0)  # seconds after each attempt


def convert(photo):
    """Writes a JPEG beside the photo, or returns what is wrong.

    What fails for a while is repeated under the same idempotency key, so that it is charged once.
    """
    key = str(uuid.uuid4())
    for wait in WAITS:
        try:
            response = request(photo, key)
            problem = None if response.ok else response.json()["error"]
        except requests.RequestException as error:  # no connection, or a proxy responds
            message = str(error)
        else:
            if problem is None:
                photo.with_suffix(".jpg").write_bytes(response.content)
                return None
            message = f"{problem['code']}: {problem['message']} ({problem['request_id']})"
            if not problem["retryable"]:
                break
            wait = int(response.headers.get("Retry-After", wait))
        time.sleep(wait)
    return f"{photo}: {message}"


def request(photo, key):
    headers = {"Authorization": f"Bearer {os.environ['CONVERTD_API_KEY']}", "Idempotency-Key": key}
    with photo.open("rb") as file:
        return requests.post(
            "{url}/convert",
            headers=headers,
            files={"file": file},
            data={"output_format": "jpeg"},
            timeout=300,
        )


with ThreadPoolExecutor(4) as pool:
    photos = [path for path in Path("photos").rglob("*") if path.suffix.lower() == ".heic"]
    results = pool.map(convert, photos)
    failed = [result for result in results if result]
raise SystemExit("\n".join(failed) or 0)

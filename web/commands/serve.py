"""The command that serves."""

from __future__ import annotations

import asyncio

from web import app
from web.processes import SandboxIncomplete
from web.terminal import FAILED, end, settings


def run(host: str, port: int) -> None:
    """Serves the API until stopped."""
    try:
        asyncio.run(app.serve(settings().at_port(port), host, port))
    except OSError as error:
        end(f"cannot serve on {host}:{port}: {error.strerror or error}", FAILED)
    except SandboxIncomplete as error:
        end(str(error), FAILED)

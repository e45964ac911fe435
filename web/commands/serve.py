"""The command that serves."""

from __future__ import annotations

import asyncio

from web import app
from web.cli_output import FAILED, fail, settings_or_exit
from web.executor_setup import SandboxIncomplete


def run(host: str, port: int) -> None:
    """Serves the API until stopped."""
    try:
        asyncio.run(app.serve(settings_or_exit().at_port(port), host, port))
    except OSError as error:
        fail(f"cannot serve on {host}:{port}: {error.strerror or error}", FAILED)
    except SandboxIncomplete as error:
        fail(str(error), FAILED)

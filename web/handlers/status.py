"""/healthz, /readyz, /version, and what stands where there is nothing."""

from __future__ import annotations

from importlib.metadata import version

from web.errors import ApiError, NotFound, NotReady
from web.handler import Handler, UncountedHandler
from web.operations import Answer, Operation
from web.shapes import service as shapes


class Health(UncountedHandler):
    """The process answers."""

    @Operation(id="healthz", tag="Service", answers=(Answer(200, "It does.", shapes.Alive, enveloped=False),))
    async def get(self) -> None:
        """Ask whether the process answers"""
        self.write_json({"status": "ok"})


class Ready(UncountedHandler):
    """The process can do its work. What it can do without is told, and is no reason to send it none."""

    @Operation(id="readyz", tag="Service", answers=(Answer(200, "It can.", shapes.Ready, enveloped=False),))
    async def get(self) -> None:
        """Ask whether the process can do its work

        What it can do without is told in `reasons`, and is no reason to send it none.
        """
        state = await self.services.readiness.state()
        if state.reasons:
            raise NotReady("The service is not ready.", details={"reasons": [*state.reasons, *state.degraded]})
        self.write_json({"status": "degraded", "reasons": state.degraded} if state.degraded else {"status": "ok"})


class Version(UncountedHandler):
    """What runs here."""

    @Operation(id="version", tag="Service", answers=(Answer(200, "The version.", shapes.Release, enveloped=False),))
    async def get(self) -> None:
        """Ask what runs here"""
        meta = {"request_id": self.request_id}
        self.write_json({"name": "convertd", "version": version("convertd"), "api": "v1", "meta": meta})


class Nothing(Handler):
    """Every path that is no resource."""

    def verbs(self) -> tuple[str, ...]:
        return ()

    def misrouted(self) -> ApiError:
        return NotFound("There is nothing at this path.")

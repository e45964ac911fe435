"""The hooks: all that a plugin can say."""

from __future__ import annotations

import pluggy

from engine.conversions import AnyConversion, AnyTool, Requirement

hookspec = pluggy.HookspecMarker("convertd")
hookimpl = pluggy.HookimplMarker("convertd")


@hookspec
def conversions() -> list[AnyConversion]:  # type: ignore[empty-body]
    """The steps this plugin adds. Called once in every process, at load; declare only what works here."""


@hookspec
def tools() -> list[AnyTool]:  # type: ignore[empty-body]
    """The operations this plugin adds. Called once in every process, at load; declare only what works here."""


@hookspec
def requirements() -> list[Requirement]:  # type: ignore[empty-body]
    """What this plugin needs from the system, present or missing. Called once in every process, at load."""

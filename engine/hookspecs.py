"""The hooks that a plugin can implement. Each is called once per process, when plugins are loaded.

Without a hook, the values of this kind in the module are the plugin's.
"""

import pluggy

from engine.conversions import AnyConversion, AnyTool, AnyTransform, Requirement

PLUGIN_API = 1
"""The version of the interface for plugins. It changes when plugins for the previous version may not work."""

hookspec = pluggy.HookspecMarker("convertd")
hookimpl = pluggy.HookimplMarker("convertd")


@hookspec
def conversions() -> list[AnyConversion]:  # type: ignore[empty-body]
    """The plugin's conversions. Return only those that work on this system."""


@hookspec
def transforms() -> list[AnyTransform]:  # type: ignore[empty-body]
    """The plugin's transforms. Return only those that work on this system."""


@hookspec
def tools() -> list[AnyTool]:  # type: ignore[empty-body]
    """The plugin's tools. Return only those that work on this system."""


@hookspec
def requirements() -> list[Requirement]:  # type: ignore[empty-body]
    """System packages that the plugin uses, present or missing."""

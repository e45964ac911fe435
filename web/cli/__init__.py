"""The command `convertd`: one module for each command or group of commands."""

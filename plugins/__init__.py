"""The built-in plugins: every module whose name does not begin with an underscore."""

"""Benchmarks: `python -m benchmarks MODE`; README.md lists the modes."""

"""Benchmarks: `python -m benchmarks pairs | quality | memory | server | peers | soak | cluster`."""

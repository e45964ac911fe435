"""Benchmarks and fault tests: `python -m benchmarks overhead | server | peers | pairs | memory | overload | faults`."""

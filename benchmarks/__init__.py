"""Benchmarks and fault tests: `python -m benchmarks pairs | overhead | verification | overload | faults`."""

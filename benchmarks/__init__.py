"""What is measured: `python -m benchmarks pairs | overhead | overload | stop`."""

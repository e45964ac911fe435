"""What is measured: `python -m benchmarks pairs | overhead | inspection | overload | stop | faults`."""

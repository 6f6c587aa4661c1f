"""Benchmarks: `python -m benchmarks [NAME …] [--json]`. Each module has a `run()`."""

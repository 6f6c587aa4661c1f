"""What is measured, with one command: `python -m benchmarks [NAME …] [--json]`. Each module has a `run()`."""

"""Readers of workload traces, one module per format: lines in, jobs out. An error names the file and the line."""

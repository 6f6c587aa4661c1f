"""Read-only queries: dry runs, explanations, free capacity, the timeline."""

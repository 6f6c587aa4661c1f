"""User input: options, requests, time windows, files and passwords."""

"""Hypothetical questions about the live cluster: read its state, and answer in a separate process."""

"""Commands for submitted work."""

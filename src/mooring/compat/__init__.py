"""Differences between the Python versions that Mooring supports."""

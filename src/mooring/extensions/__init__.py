"""Code of installed packages: discovery, hooks, and calls that cannot hang the caller."""

"""The built web console, which `make console` writes below `assets/`, and the reader of its files.

It imports nothing of Mooring. The sources are in `console/` of the repository.
"""

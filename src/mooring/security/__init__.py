"""Secrets of the installation: where they come from, private files, encryption at rest."""

"""Uploads of projects: their manifests and chunks. Imports the tables and the database layer."""

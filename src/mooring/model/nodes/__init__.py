"""Nodes as placement sees them, their health, and templates for new ones."""

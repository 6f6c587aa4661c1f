"""Uploaded folders: declaration, content and expiry. Imports the store and wire schemas."""

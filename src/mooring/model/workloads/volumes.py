"""Volumes: folders of a project that outlive its tasks, on one node or shared by all nodes of a pool."""

from __future__ import annotations

from enum import StrEnum

STORAGE = "storage"
"""The slot that volume sizes count towards."""


class VolumeStatus(StrEnum):
    UNPLACED = "unplaced"
    """The first task that mounts it determines its node."""
    AVAILABLE = "available"
    UNREACHABLE = "unreachable"
    """Its node is silent: the content may come back."""
    LOST = "lost"
    """Its node was removed, and its content with it."""
    REMOVING = "removing"
    """It is being deleted; a node has yet to confirm."""

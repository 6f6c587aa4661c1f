"""Volumes: folders of a project that outlive its tasks, on one node or shared by all nodes of a pool."""

from __future__ import annotations

from enum import StrEnum

STORAGE = "storage"
"""The slot that sizes of volumes count as."""


class VolumeStatus(StrEnum):
    UNPLACED = "unplaced"
    """The first task that mounts it says where it is."""
    AVAILABLE = "available"
    UNREACHABLE = "unreachable"
    """Its node is silent: what is in it may come back."""
    LOST = "lost"
    """Its node was removed, and what was in it with the node."""
    REMOVING = "removing"
    """It is to go; a node has yet to say that nothing is left of it."""

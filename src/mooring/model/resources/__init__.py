"""Quantities, slots and devices, and the total that a task of several containers needs."""

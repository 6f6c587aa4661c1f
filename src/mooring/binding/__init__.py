"""Turns decisions into committed state. Imports scheduling, store and model."""

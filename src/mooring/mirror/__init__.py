"""The store's state as the core's values, kept current by the event feed. Imports scheduling, store and model."""

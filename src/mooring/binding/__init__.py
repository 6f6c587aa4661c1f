"""Binding: commits scheduling decisions. Imports scheduling, store and model."""

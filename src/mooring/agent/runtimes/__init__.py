"""Runtimes: the contract, and the two built-in ones for processes and containers."""

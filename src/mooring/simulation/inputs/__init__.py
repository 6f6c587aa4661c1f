"""Inputs of a simulation: nodes from files and servers, traces, generators and scenario files."""

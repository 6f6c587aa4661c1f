"""Autoscaling: requests nodes for pending workloads and releases idle nodes."""

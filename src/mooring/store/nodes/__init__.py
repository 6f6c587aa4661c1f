"""Nodes, pools and devices: their capacity, their health, and the tasks that belong on them."""

"""Facts about the machine: resources, health, isolation, cgroup limits and measured usage."""

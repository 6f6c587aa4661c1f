"""Control loops over workloads: replacements, time limits, idle sessions, rollouts."""

"""Validators: may a workload be submitted, and may it run now? One file each."""

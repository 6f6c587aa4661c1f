"""Storage of domains, projects, users and keypairs, with their policies, quotas, secrets and administrative actions."""

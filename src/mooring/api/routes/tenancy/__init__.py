"""Routes of tenants: login, users, projects, keypairs, quotas, fair share and accounting."""

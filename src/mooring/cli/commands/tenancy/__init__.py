"""Commands for tenants, quotas and accounting."""

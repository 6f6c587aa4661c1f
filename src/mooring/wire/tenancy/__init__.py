"""Schemas of tenants, quotas, fair share and accounting."""

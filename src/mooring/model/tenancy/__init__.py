"""Tenants, their access, policies, quotas and fair share."""

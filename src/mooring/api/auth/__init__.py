"""Authentication: passwords, tokens, signing keys, login throttling, and the principal of a request."""

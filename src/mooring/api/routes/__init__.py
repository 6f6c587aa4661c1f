"""HTTP routes, one module per resource. Route modules do not import each other."""

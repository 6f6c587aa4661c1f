"""Commands that stay connected: followed output, terminals, waiting, signals."""

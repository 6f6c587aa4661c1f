"""The commands, a file each or a family of them; every module has an `app` that the root takes in."""

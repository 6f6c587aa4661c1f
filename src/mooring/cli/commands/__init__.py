"""The commands, one file per command or family; every module has an `app` that the root command includes."""

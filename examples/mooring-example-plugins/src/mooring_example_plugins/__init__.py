"""Plugins for Mooring, one file each: `docs/how-to/plugins.md` of Mooring explains the kinds and what each costs."""

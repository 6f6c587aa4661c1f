"""Plugins for Mooring, one file each: `docs/plugins.md` of Mooring explains the kinds and what each costs."""

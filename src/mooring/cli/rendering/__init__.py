"""Output for people and programs: tables, details, explanations, progress."""

"""Sequencers: who is next? One file each."""

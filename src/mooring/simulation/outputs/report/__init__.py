"""The HTML report of a simulation: one file with its data, styles and script, which loads nothing from elsewhere."""

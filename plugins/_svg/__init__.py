"""SVG: reading, CSS, effects, and rendering."""

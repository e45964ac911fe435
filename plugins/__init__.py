"""One file per format. Whatever lies here and does not start with an underscore is a plugin."""

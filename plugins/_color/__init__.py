"""Color: code points, profiles, conversions between color spaces, and gain maps."""

"""The only package that imports textual."""

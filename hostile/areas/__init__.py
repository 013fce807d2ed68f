"""The areas: one module each, with a function ``case``."""

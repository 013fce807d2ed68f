"""What is tried: a module per area, each with a function ``case``."""

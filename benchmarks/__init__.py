"""How fast recmap is, compared with what people use today: ``python -m benchmarks``."""

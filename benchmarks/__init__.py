"""How fast recmap is beside what people use today: ``python -m benchmarks``."""

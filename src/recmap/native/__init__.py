"""The compiled core. Its source is in native/; ``make stubs`` writes _core.pyi."""

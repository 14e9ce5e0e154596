"""The outcome of a run as a value, and what becomes of it: model file, tables, run folder."""

"""How long things take. Nothing here is a test, as a time depends on the machine and its other work."""

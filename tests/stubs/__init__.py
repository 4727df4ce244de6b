"""Types for checkers and editors: the script that writes the stubs, and programs that must pass."""

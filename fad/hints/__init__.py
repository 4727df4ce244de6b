"""What to write for names that fad does not have: tables for the messages of errors."""

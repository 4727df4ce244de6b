"""The eager graph: running it backward, and switching recording off and on."""

"""Recording operations as a graph, and running it backward."""

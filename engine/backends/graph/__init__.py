"""A model's forward pass as a graph of nodes, recorded once for every backend."""

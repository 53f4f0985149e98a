"""How the matrices of files are packed for a backend: in pieces, of several layouts, scales within blocks."""

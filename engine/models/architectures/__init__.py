"""One file for each architecture: how its headers are read, what its tensors are called, which parts it is
made of.
"""

"""The parts that decoders are made of, and the kinds of layers that are built from a file's tensors."""

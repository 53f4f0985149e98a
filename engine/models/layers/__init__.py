"""The parts that decoders are made of, and the kinds of layers that are built from a file's tensors.

parts       linear layers, norms, feed-forward parts, and the usual block
mixture     mixtures of experts
whole       a whole decoder, and the layers between its embedding and its last norm
attention, recurrent, positions, residual   rooms for what single architectures have
"""

"""Files that `torch.save` wrote (pytorch_model.bin): tensors found without running what the file asks for."""

from __future__ import annotations

PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
"""The names of PyTorch's files, which are read where there are no others."""

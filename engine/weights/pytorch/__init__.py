"""Files that `torch.save` wrote (pytorch_model.bin): tensors found without running what the file asks for."""

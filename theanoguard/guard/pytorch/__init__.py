"""The guard on the PyTorch backend."""

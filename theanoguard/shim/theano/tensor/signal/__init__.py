"""Pooling, and the convolution of single images."""

"""localspec: GGUF models on your own computer, faster, with the same answers."""

__version__ = "0.1.0"

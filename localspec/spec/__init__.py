"""Speculative decoding itself: pure Python and numpy, no llama.cpp, no files, no screen."""

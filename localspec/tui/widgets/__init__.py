"""The parts of the chat view."""

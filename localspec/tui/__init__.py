"""The only package that imports textual."""

import os

# A letter waits for the next of so many moments in a second; Textual's own 60 are felt. Answers
# come at the pace of the view.
os.environ.setdefault("TEXTUAL_FPS", "120")

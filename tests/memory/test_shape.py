from pathlib import Path

import pytest
from helpers_gguf import llama_metadata, write_tiny_llama

from localspec.ggml_types import BY_NAME
from localspec.gguf import read_header
from localspec.header import BigArray, Header, Tensor
from localspec.memory import Shape, repacked_types

AVX512 = repacked_types(["avx2", "avx512f"])


def header(architecture: str, tensors: tuple[Tensor, ...] = (), **keys: object) -> Header:
    """A header with ``<architecture>.<key>`` settings; ``__`` in a key stands for a dot."""
    metadata = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    metadata["general.architecture"] = architecture
    return Header(version=3, metadata=metadata, tensors=tensors)


def tensor(name: str, shape: tuple[int, ...], kind: str = "Q4_K") -> Tensor:
    return Tensor(name, shape, BY_NAME[kind], 0, BY_NAME[kind].tensor_bytes(shape))


def attention(**more: object) -> dict[str, object]:
    return {
        "embedding_length": 640,
        "attention__head_count": 4,
        "attention__head_count_kv": 1,
        "attention__key_length": 256,
        "attention__value_length": 256,
    } | more


# -- weights -------------------------------------------------------------------------------------


def test_weights_go_to_their_layer_and_a_tied_output_is_counted_once(tmp_path: Path):
    found = read_header(write_tiny_llama(tmp_path / "t.gguf"))
    shape = Shape.of(found)
    assert len(shape.layers) == 2
    assert shape.tied
    assert shape.weight_bytes == found.weight_bytes
    assert shape.input.weight_bytes == shape.output_copy_bytes == 258 * 64 * 4
    assert shape.output.weight_bytes == 258 * 64 * 4 + 64 * 4  # the copy and the last norm


def test_an_output_of_its_own_is_not_a_copy():
    tensors = (tensor("token_embd.weight", (256, 80)), tensor("output.weight", (256, 80), "Q6_K"))
    shape = Shape.of(header("llama", tensors, block_count=1))
    assert not shape.tied
    assert shape.output_copy_bytes == 0
    assert shape.weight_bytes == 80 * 144 + 80 * 210


def test_only_matrices_of_types_that_this_cpu_repacks_are_copied():
    tensors = (
        tensor("token_embd.weight", (256, 80)),  # tied: the output's use of it is repacked
        tensor("output_norm.weight", (256,), "F32"),
        tensor("blk.0.attn_q.weight", (256, 256)),
        tensor("blk.0.attn_v.weight", (256, 256), "Q6_K"),
        tensor("blk.0.odd.weight", (256, 12)),  # 12 rows are not interleaved by 8
        tensor("blk.0.ffn_up_exps.weight", (256, 16, 4)),
    )
    found = header("llama", tensors, block_count=1)
    layer = Shape.of(found, AVX512).layers[0]
    assert layer.repacked_bytes == 256 * 144 + 64 * 144
    assert Shape.of(found, AVX512).output.repacked_bytes == 80 * 144
    assert Shape.of(found).layers[0].repacked_bytes == 0
    arm = Shape.of(found, repacked_types(["ASIMDDP"])).layers[0]
    assert arm.repacked_bytes == layer.repacked_bytes + 256 * 210


def test_which_types_are_repacked_follows_the_cpu():
    assert repacked_types([]) == frozenset()
    assert repacked_types(["avx2"]) == {"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"}
    assert "Q2_K" in AVX512
    assert "Q8_0" not in AVX512
    assert "Q8_0" in repacked_types(["asimddp"])


def test_layers_that_predict_further_tokens_are_not_loaded():
    tensors = (tensor("blk.0.a.weight", (256, 8)), tensor("blk.1.a.weight", (256, 8)))
    shape = Shape.of(header("qwen35", tensors, block_count=2, nextn_predict_layers=1))
    assert len(shape.layers) == 1
    assert shape.weight_bytes == 8 * 144


# -- caches --------------------------------------------------------------------------------------


def test_grouped_heads_cache_only_their_own():
    layer = Shape.of(header("qwen2", block_count=1, **attention())).layers[0]
    assert (layer.k_width, layer.v_width, layer.window) == (256, 256, 0)


def test_heads_may_differ_from_layer_to_layer():
    heads = {"attention__head_count_kv": (4, 0, 2)}
    layers = Shape.of(header("openelm", block_count=3, **attention(**heads))).layers
    assert [layer.k_width for layer in layers] == [1024, 0, 512]


@pytest.mark.parametrize(
    ("architecture", "keys", "full"),
    [
        ("gemma3", {"block_count": 18}, [5, 11, 17]),
        ("gemma2", {"block_count": 6}, [1, 3, 5]),
        ("gpt-oss", {"block_count": 4}, [1, 3]),
        ("cohere2", {"block_count": 8}, [3, 7]),
        ("smallthinker", {"block_count": 8}, [0, 4]),
        ("llama4", {"block_count": 8}, [3, 7]),
        ("gemma3", {"block_count": 6, "attention__sliding_window_pattern": 3}, [2, 5]),
        (
            "gemma4",
            {"block_count": 3, "attention__sliding_window_pattern": (True, False, True)},
            [1],
        ),
        ("phi3", {"block_count": 3}, [0, 1, 2]),  # has the key, but llama.cpp ignores it
    ],
)
def test_sliding_windows_follow_the_architecture(architecture, keys, full):
    found = header(architecture, attention__sliding_window=512, **attention(), **keys)
    windows = [layer.window for layer in Shape.of(found).layers]
    assert [place for place, window in enumerate(windows) if not window] == full
    if architecture == "llama4":
        assert max(windows) == 8192


def test_window_layers_may_have_heads_of_another_size():
    keys = {
        "attention__sliding_window": 512,
        "attention__sliding_window_pattern": (True, False),
        "attention__key_length": 512,
        "attention__value_length": 512,
        "attention__key_length_swa": 256,
        "attention__value_length_swa": 256,
    }
    layers = Shape.of(header("gemma4", block_count=2, **(attention() | keys))).layers
    assert [(layer.k_width, layer.v_width) for layer in layers] == [(256, 256), (512, 512)]


def test_layers_that_share_the_keys_of_others_cache_nothing():
    keys = attention(attention__shared_kv_layers=2, attention__sliding_window=512)
    layers = Shape.of(header("gemma4", block_count=5, **keys)).layers
    assert [layer.k_width for layer in layers] == [256, 256, 256, 0, 0]


def test_mla_keeps_one_compressed_row():
    keys = {
        "embedding_length": 7168,
        "attention__head_count": 128,
        "attention__head_count_kv": 1,
        "attention__key_length": 576,
        "attention__value_length": 512,
        "attention__key_length_mla": 192,
        "attention__value_length_mla": 128,
    }
    layer = Shape.of(header("deepseek2", block_count=1, **keys)).layers[0]
    assert (layer.k_width, layer.v_width) == (576, 0)


def test_hybrids_have_states_where_they_have_no_keys():
    # Qwen3.5: every fourth layer attends. State: llama-hparams.cpp, n_embd_r and n_embd_s.
    keys = attention(
        ssm__conv_kernel=4, ssm__inner_size=4096, ssm__state_size=128, ssm__group_count=16
    )
    shape = Shape.of(header("qwen35", block_count=8, **keys))
    assert [layer.k_width > 0 for layer in shape.layers] == [False] * 3 + [True] + [False] * 3 + [
        True
    ]
    assert shape.layers[0].state_bytes == 4 * (3 * (4096 + 2 * 16 * 128) + 128 * 4096)
    assert shape.layers[3].state_bytes == 0
    assert shape.has_state


def test_hybrids_by_head_count_and_pure_recurrent_models():
    keys = attention(attention__head_count_kv=(0, 8, 0), shortconv__l_cache=3)
    lfm2 = Shape.of(header("lfm2", block_count=3, **keys))
    assert [layer.state_bytes for layer in lfm2.layers] == [640 * 2 * 4, 0, 640 * 2 * 4]
    mamba = Shape.of(
        header(
            "mamba",
            block_count=2,
            embedding_length=768,
            ssm__conv_kernel=4,
            ssm__inner_size=1536,
            ssm__state_size=16,
        )
    )
    assert [layer.state_bytes for layer in mamba.layers] == [4 * (3 * 1536 + 16 * 1536)] * 2
    assert not any(layer.k_width for layer in mamba.layers)
    falcon = Shape.of(header("falcon-h1", block_count=1, **attention(ssm__state_size=16)))
    assert falcon.layers[0].k_width


def test_experts_count_in_the_feed_forward_width():
    moe = header(
        "qwen3moe",
        block_count=1,
        expert_count=128,
        expert_used_count=8,
        expert_feed_forward_length=768,
        feed_forward_length=6144,
        **attention(),
    )
    assert Shape.of(moe).n_ff == 8 * 768
    assert Shape.of(moe).n_ff_extra == 8 * 640


def test_merges_are_counted_wherever_they_are_kept():
    found = header("llama", block_count=1)
    many = Header(
        version=3,
        metadata=found.metadata,
        arrays={"tokenizer.ggml.merges": BigArray("string", 5000)},
    )
    assert Shape.of(many).n_merges == 5000
    assert Shape.of(found).n_merges == 0


# -- split files and catalogs --------------------------------------------------------------------


def test_a_split_model_of_which_only_the_first_part_is_known_is_scaled():
    tensors = (tensor("token_embd.weight", (256, 80)), tensor("blk.0.a.weight", (256, 8)))
    shape = Shape.of(header("llama", tensors, block_count=4), AVX512).scaled_to(1_000_000)
    assert abs(shape.weight_bytes - 1_000_000) < 4
    assert shape.estimated
    assert shape.layers[0].repacked_bytes == shape.layers[0].weight_bytes


def test_a_catalog_s_numbers_give_the_caches_of_the_header():
    numbers = {
        "n_layer": 18,
        "n_layer_full": 3,
        "n_layer_swa": 15,
        "n_swa": 512,
        "n_head": 4,
        "n_head_kv": 1,
        "n_embd_head_k": 256,
        "n_embd_head_v": 256,
        "n_embd": 640,
        "n_vocab": 262144,
    }
    shape = Shape.of_numbers(numbers, 253_113_024)
    assert shape is not None
    assert sorted(layer.window for layer in shape.layers) == [0] * 3 + [512] * 15
    assert {(layer.k_width, layer.v_width) for layer in shape.layers} == {(256, 256)}
    assert abs(shape.weight_bytes - 253_113_024) < 18
    assert shape.estimated


def test_numbers_that_do_not_suffice_give_no_shape():
    assert Shape.of_numbers({"n_layer": 18}, 1000) is None
    assert Shape.of_numbers({"n_layer": 10**9, "n_embd": 1, "n_vocab": 1}, 1000) is None
    assert Shape.of_numbers({"n_layer": "x", "n_embd": 1, "n_vocab": 1}, 1000) is None


def test_a_header_of_the_tiny_model_has_the_numbers_it_was_made_with(tmp_path: Path):
    shape = Shape.of(read_header(write_tiny_llama(tmp_path / "t.gguf")))
    meta = llama_metadata()
    assert shape.n_embd == meta["llama.embedding_length"]
    assert shape.n_ff == meta["llama.feed_forward_length"]
    assert shape.n_ctx_train == 512

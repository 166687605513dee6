"""Published models by name. The source of each is its Hugging Face ``config.json``."""

from __future__ import annotations

from typing import Final

from cdk_blackwell.planning.model_shape import ModelShape, RopeScaling

_LLAMA_3_2_SCALING = RopeScaling(
    factor=32.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8192,
)
_LLAMA_3_1_SCALING = RopeScaling(
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8192,
)

_ALL = (
    ModelShape(  # meta-llama/Llama-3.2-1B
        name="llama-3.2-1b",
        vocab_size=128_256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=131_072,
        rope_theta=500_000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_scaling=_LLAMA_3_2_SCALING,
    ),
    ModelShape(  # meta-llama/Llama-3.2-3B
        name="llama-3.2-3b",
        vocab_size=128_256,
        hidden_size=3072,
        intermediate_size=8192,
        num_hidden_layers=28,
        num_attention_heads=24,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=131_072,
        rope_theta=500_000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_scaling=_LLAMA_3_2_SCALING,
    ),
    ModelShape(  # meta-llama/Llama-2-7b-hf
        name="llama-2-7b",
        vocab_size=32_000,
        hidden_size=4096,
        intermediate_size=11_008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=32,
        head_dim=128,
        max_position_embeddings=4096,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    ),
    ModelShape(  # meta-llama/Llama-3.1-8B
        name="llama-3.1-8b",
        vocab_size=128_256,
        hidden_size=4096,
        intermediate_size=14_336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=131_072,
        rope_theta=500_000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        rope_scaling=_LLAMA_3_1_SCALING,
    ),
    ModelShape(  # meta-llama/Llama-2-13b-hf
        name="llama-2-13b",
        vocab_size=32_000,
        hidden_size=5120,
        intermediate_size=13_824,
        num_hidden_layers=40,
        num_attention_heads=40,
        num_key_value_heads=40,
        head_dim=128,
        max_position_embeddings=4096,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    ),
)

PRESETS: Final = {shape.name: shape for shape in _ALL}

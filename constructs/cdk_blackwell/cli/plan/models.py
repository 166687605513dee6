"""The table of ``--list-models``."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from cdk_blackwell.planning.presets import PRESETS
from cdk_blackwell.planning.tiers import tier_for


def model_rows() -> list[dict[str, Any]]:
    """All presets, smallest first, as plain JSON types."""
    return [
        {
            "preset": name,
            "parameters": preset.shape.parameter_count,
            "layers": preset.shape.num_hidden_layers,
            "hidden_size": preset.shape.hidden_size,
            "attention_heads": preset.shape.num_attention_heads,
            "key_value_heads": preset.shape.num_key_value_heads,
            "context": preset.shape.max_position_embeddings,
            "tier": tier_for(preset.shape.parameter_count).tier,
        }
        for name, preset in PRESETS.items()
    ]


def print_models(console: Console) -> None:
    """All presets, smallest first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("preset", no_wrap=True)
    for title in ("parameters", "layers", "hidden", "heads", "context"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("tier", no_wrap=True)
    for row in model_rows():
        table.add_row(
            row["preset"],
            f"{row['parameters'] / 1e9:.2f}B",
            str(row["layers"]),
            f"{row['hidden_size']:,}",
            f"{row['attention_heads']}/{row['key_value_heads']}",
            f"{row['context']:,}",
            row["tier"],
        )
    console.print(table)
    console.print(
        "\nheads: of queries / of keys and values; context: tokens the model was made for\n"
        "any other dense decoder: --model path/to/config.json (Hugging Face)",
        style="dim",
    )

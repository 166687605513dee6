"""The table of ``--list-models``."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from cdk_blackwell.planning.presets import PRESETS
from cdk_blackwell.planning.tiers import tier_for


def print_models(console: Console) -> None:
    """All presets, smallest first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("preset", no_wrap=True)
    for title in ("parameters", "layers", "hidden", "heads", "context"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("tier", no_wrap=True)
    for name, preset in PRESETS.items():
        shape = preset.shape
        table.add_row(
            name,
            f"{shape.parameter_count / 1e9:.2f}B",
            str(shape.num_hidden_layers),
            f"{shape.hidden_size:,}",
            f"{shape.num_attention_heads}/{shape.num_key_value_heads}",
            f"{shape.max_position_embeddings:,}",
            tier_for(shape.parameter_count).tier,
        )
    console.print(table)
    console.print(
        "\nheads: of queries / of keys and values; context: tokens the model was made for\n"
        "any other dense decoder: --model path/to/config.json (Hugging Face)",
        style="dim",
    )

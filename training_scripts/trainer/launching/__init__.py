"""What the container's entrypoint needs before torch may be imported: standard library only."""

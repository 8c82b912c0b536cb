"""How an image is stored: unchanged, with restart markers, or re-encoded."""

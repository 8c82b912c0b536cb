"""Where images come from: every source becomes one listing."""

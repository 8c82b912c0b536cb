"""Files of other tools as sources."""

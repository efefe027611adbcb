"""The life of a campaign: asked for, prepared, registered, run, watched, closed, published."""

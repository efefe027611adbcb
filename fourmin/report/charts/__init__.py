"""Charts: what they show (`rows`), how (`specs`, `theme`), and as files of their own (`files`)."""

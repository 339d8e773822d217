"""One folder for each feature: its logic, its hooks of pytest (`plugin.py`), its command (`cli.py`), its report."""

"""What the ``fastpos`` command does, one file a thing; loaded only when a command runs."""

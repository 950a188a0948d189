"""``python -m fastpos``: the ``fastpos`` command where no script is installed."""

from .cli import app

if __name__ == "__main__":
    app()

"""The command `fourmin`, also as `python -m fourmin`: signals first, then all that takes time."""

from fourmin.cli.start import run


def main() -> None:
    """Run the command line and end the process."""
    run(_commands)


def _commands() -> None:
    from fourmin.cli.main import app

    app()


if __name__ == "__main__":
    main()

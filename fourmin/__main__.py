"""`python -m fourmin` is the same as the console script."""

from fourmin.cli.main import main

if __name__ == "__main__":
    main()

"""``python -m fastdata``."""

from fastdata.cli import main

if __name__ == "__main__":
    main()

"""`eos`, and `python -m eos`: listens to signals, and imports the command line then."""

import sys

from eos.launch import early


def main() -> None:
    is_run = sys.argv[1:2] == ["run"]
    if is_run:
        early.listen()  # until it has become the launcher
    else:
        early.listen_quietly()

    from eos.cli.main import main as command_line  # behind it: this takes a while

    if not is_run:
        early.usual()
    command_line()


if __name__ == "__main__":
    main()

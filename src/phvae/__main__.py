"""`python -m phvae` is the command line."""

from phvae.cli import main

if __name__ == "__main__":
    main()

"""`python -m webhook.cli` is `giveway`."""

from webhook.cli.main import main

if __name__ == "__main__":
    main(prog_name="giveway")

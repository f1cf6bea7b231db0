"""`python -m webhook.cli` is `giveway`."""

from webhook.cli.main import run

if __name__ == "__main__":
    run()

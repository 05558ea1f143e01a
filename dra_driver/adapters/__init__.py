"""One third party each, behind the ports."""

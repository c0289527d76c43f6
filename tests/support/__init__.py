"""What tests share: helpers, all imported as ``tests.support.…``."""

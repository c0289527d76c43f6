"""The entry script and its side inputs, checked and copied by the driver."""

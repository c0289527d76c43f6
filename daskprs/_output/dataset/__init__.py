"""The output as a data set: part files of typed rows, in a folder that is published whole."""

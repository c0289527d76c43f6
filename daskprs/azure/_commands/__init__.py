"""The commands of the command line that read files of Azure."""

"""GASLoC on a host: a trainer, files of what travels, and the driver's orders on the compute thread."""

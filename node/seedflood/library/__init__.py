"""seedflood in a script of one's own: the script computes the loss, a daemon in a thread beside it does the rest."""

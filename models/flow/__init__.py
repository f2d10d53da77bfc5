"""Flow scheduling: which task runs where, with goals that switch on demand; `live` keeps it solved."""

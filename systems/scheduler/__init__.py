"""Schedulers as services on a database: one leader, any number of followers."""

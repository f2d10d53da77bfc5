"""The base of all errors that flowlex raises on purpose."""


class FlowlexError(Exception):
    """What was asked cannot be done; the message names the offender and says what to do instead."""

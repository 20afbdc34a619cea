class Conflict(Exception):
    """What was asked contradicts the present state. The message says the state and a way out."""

"""Source text for the test programs of code tasks."""

SAME = """
def _same(found, expected, atol=0):
    # Numbers by their value, whatever their types: 2, 2.0 and, for 1, True are what the published checkers take.
    numbers = (bool, int, float)
    if type(found) in numbers and type(expected) in numbers:
        if type(expected) is not float and not atol:
            return found == expected
        # From infinity, everything is within a share of it.
        within = max(atol or 1e-6, 1e-7 * abs(expected))
        return found == expected or abs(found - expected) <= within < float("inf") or (
            found != found and expected != expected)
    # Types first: an object that calls itself equal to everything must not pass.
    if type(found) is not type(expected):
        return False
    if type(expected) in (list, tuple):
        return len(found) == len(expected) and all(_same(a, b, atol) for a, b in zip(found, expected))
    if type(expected) is dict:
        return found.keys() == expected.keys() and all(_same(found[k], expected[k], atol) for k in expected)
    return found == expected
"""
"""`_same(found, expected, atol)`: equal numbers (within a tolerance where a float is expected) or values of the same
built-in types."""

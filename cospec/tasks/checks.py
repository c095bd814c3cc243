"""Source text for the test programs of code tasks."""

SAME = """
def _same(found, expected, atol=0):
    # Types first: an object that calls itself equal to everything must not pass.
    if type(found) is not type(expected):
        return False
    if type(expected) is float:
        return found == expected or abs(found - expected) <= max(atol or 1e-6, 1e-7 * abs(expected)) or (
            found != found and expected != expected)
    if type(expected) in (list, tuple):
        return len(found) == len(expected) and all(_same(a, b, atol) for a, b in zip(found, expected))
    if type(expected) is dict:
        return found.keys() == expected.keys() and all(_same(found[k], expected[k], atol) for k in expected)
    return found == expected
"""
"""`_same(found, expected, atol)`: equal values of the same built-in types, floats within a tolerance."""

"""What changed between two documents, as a JSON merge patch (RFC 7396).

Objects are compared member by member; anything else, arrays included, is replaced whole.
`null` removes a member, so documents carry no nulls of their own outside arrays: what is
not known is a dash or is left out.
"""

from typing import Any

Document = dict[str, Any]


def diff(old: Document, new: Document) -> Document:
    """The smallest patch such that `apply(old, diff(old, new)) == new`."""
    patch: Document = {}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = diff(before, value)
            if inner:
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    for key in old:
        if key not in new:
            patch[key] = None
    return patch


def apply(document: Document, patch: Document) -> Document:
    """The document after the patch. Neither argument is changed."""
    result = dict(document)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            result[key] = apply(before if isinstance(before, dict) else {}, value)
        else:
            result[key] = value
    return result

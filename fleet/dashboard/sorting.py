"""Links in table heads: each sorts by its column, and turns the order round the second time."""

from collections.abc import Iterable

from django.http import HttpRequest


def sort_links(
    request: HttpRequest, keys: Iterable[str], default: str
) -> dict[str, dict[str, str]]:
    """By column: where its head leads, and how it is sorted now."""
    present = request.GET.get("sort", default)
    name = present.removeprefix("-")
    links = {}
    for key in keys:
        query = request.GET.copy()
        query.pop("page", None)
        query["sort"] = f"-{key}" if present == key else key
        sorted_as = ""
        if key == name:
            sorted_as = "descending" if present.startswith("-") else "ascending"
        links[key] = {"href": f"?{query.urlencode()}", "sorted": sorted_as}
    return links

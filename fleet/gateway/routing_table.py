"""Which endpoint answers which method and path: a table, easy to extend.

`add("POST", "/v1/infer", begin, hot=True)` is all a new endpoint needs. A path may hold one
`{name}`; its value arrives as `call.path`'s matching part through `Match.value`. Hot routes
are also taken on the short road (`wire`), so their `begin` must answer through the call and
not assume ASGI.
"""

from dataclasses import dataclass

from fleet.gateway.call import Begin
from fleet.gateway.errors import Problem


@dataclass(slots=True)
class Route:
    """The endpoints of one path, by method."""

    path: str
    methods: dict[str, Begin]
    media: bytes | None = b"application/json"  # what a POST must carry; None: anything
    hot: bool = False
    deep: bool = False  # the `{name}` may hold slashes, as names of models do


class RoutingTable:
    """Exact paths first, then those with one parameter."""

    def __init__(self) -> None:
        self._exact: dict[str, Route] = {}
        self._patterned: list[tuple[str, str, Route]] = []

    def add(
        self,
        method: str,
        path: str,
        begin: Begin,
        *,
        hot: bool = False,
        deep: bool = False,
        media: bytes | None = b"application/json",
    ) -> None:
        """Let `begin` answer `method path`."""
        before, brace, rest = path.partition("{")
        route = self._exact.get(path)
        if brace:
            after = rest.partition("}")[2]
            for prefix, suffix, known in self._patterned:
                if (prefix, suffix) == (before, after):
                    route = known
            if route is None:
                route = Route(path, {}, media, hot, deep)
                self._patterned.append((before, after, route))
        elif route is None:
            route = self._exact[path] = Route(path, {}, media, hot)
        route.methods[method] = begin

    def hot(self) -> dict[bytes, Begin]:
        """The POST endpoints of the short road, by raw path."""
        return {
            route.path.encode(): route.methods["POST"]
            for route in self._exact.values()
            if route.hot and "POST" in route.methods
        }

    def find(self, method: str, path: str) -> tuple[Begin, Route]:
        """The endpoint, or a `Problem` that says what would have been right."""
        route = self._exact.get(path) or self._match(path)
        if route is None:
            raise Problem("not_found", f"{path[:200]}: no such path", details={"field": "path"})
        begin = route.methods.get(method)
        if begin is None and method == "HEAD":
            begin = route.methods.get("GET")
        if begin is None:
            allowed = ", ".join(sorted(route.methods))
            raise Problem(
                "method_not_allowed",
                f"{route.path} takes {allowed}, not {method[:20]}",
                details={"allowed": sorted(route.methods)},
                headers=((b"allow", allowed.encode()),),
            )
        return begin, route

    def paths(self) -> list[str]:
        """Every path of the table: the label set of the HTTP metrics."""
        return sorted([*self._exact, *(route.path for _, _, route in self._patterned)])

    def _match(self, path: str) -> Route | None:
        for before, after, route in self._patterned:
            inside = path[len(before) : len(path) - len(after)]
            fits = path.startswith(before) and path.endswith(after) and inside
            if fits and (route.deep or "/" not in inside):
                return route
        return None


def parameter(route_path: str, path: str) -> str:
    """The value of the one `{name}` of `route_path` in `path`."""
    before, _, rest = route_path.partition("{")
    return path[len(before) : len(path) - len(rest.partition("}")[2])]

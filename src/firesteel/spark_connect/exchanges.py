"""Finds how rows get from one vertex to the next in Spark's physical plans, and names it as Flink does.

Plans grow from vertex to vertex. What the plan of a vertex has in addition to those of its inputs belongs to the
vertex.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.jobgraph.model import JobGraph, Sink, Source, Vertex, inputs_of

FORWARD, HASH, BROADCAST, REBALANCE, RANGE, GLOBAL = "FORWARD", "HASH", "BROADCAST", "REBALANCE", "RANGE", "GLOBAL"
WORDS = frozenset({FORWARD, HASH, BROADCAST, REBALANCE, RANGE, GLOBAL})
MOST_VERTICES = 30
"""The most vertices of a graph whose plans are asked for: each is a request to the engine."""

_LINE = re.compile(r"^(?P<indent>[ :]*(?:[+:]- )?)(?:\*\(\d+\) |\* )?(?P<text>\S.*)$")
_NOISE = re.compile(r"#\d+L?|\[?plan_id=\d+\]?,?|\s+")
_BY_PARTITIONING = (
    ("hashpartitioning", HASH),
    ("clusteredpartitioning", HASH),
    ("rangepartitioning", RANGE),
    ("SinglePartition", GLOBAL),
)


@dataclass(frozen=True, slots=True)
class PlanLine:
    depth: int
    text: str
    """Without the numbers that Spark gives to columns and plans."""

    @property
    def exchange(self) -> str | None:
        """Flink's word for an operator; None when it is not an exchange, or one that a vertex requests by its
        parallelism."""
        if self.text.startswith("BroadcastExchange"):
            return BROADCAST
        if not self.text.startswith("Exchange"):
            return None
        return next((word for name, word in _BY_PARTITIONING if name in self.text), None)


def parse_plan(text: str) -> list[PlanLine]:
    """The operators of a plan that was explained, each after the one that it feeds."""
    nodes = []
    for line in text.splitlines():
        if "== Initial Plan ==" in line:
            break  # what follows is what Spark meant to do before it saw the rows
        match = _LINE.match(line)
        if match is None or match["text"].startswith("=="):
            continue
        nodes.append(PlanLine(len(match["indent"]) // 3, _NOISE.sub("", match["text"])))
    return nodes


def ship_strategies(graph: JobGraph, plans: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """By vertex and input, from the plan of each vertex of a batch. An edge of which the plans leave doubt has none."""
    parsed = {name: parse_plan(text) for name, text in plans.items()}
    found: dict[str, dict[str, str]] = {}
    for vertex in graph.vertices:
        inputs = inputs_of(vertex)
        if not inputs:
            continue
        if isinstance(vertex, Sink):
            found[vertex.name] = _into_sink(graph, vertex)
        elif vertex.name in parsed and all(name in parsed for name in inputs):
            before = Counter(n.text for name in inputs for n in parsed[name] if n.exchange)
            leaves = {name: {n.text for n in _leaves(parsed[name])} for name in inputs}
            found[vertex.name] = _spread(graph, _words(parsed[vertex.name], before, leaves))
    return found


def ship_strategies_of_query(graph: JobGraph, sink: Sink, plan: str) -> dict[str, dict[str, str]]:
    """The same from the one plan that the query of a streaming sink has: Spark tells no plans of its parts."""
    nodes = parse_plan(plan)
    behind = _behind(graph, sink.name)
    between = [v for v in behind if inputs_of(v) and not isinstance(v, Sink)]
    found = {sink.name: _into_sink(graph, sink)}
    if not any(n.exchange for n in nodes):
        found |= {v.name: _spread(graph, dict.fromkeys(inputs_of(v), FORWARD)) for v in between}
    elif len(between) == 1:
        (vertex,) = between
        leaves = _of_sources([v for v in behind if isinstance(v, Source)], {n.text for n in _leaves(nodes)})
        words = _words(nodes, Counter(), {name: leaves.get(name, set()) for name in inputs_of(vertex)})
        found[vertex.name] = _spread(graph, words)
    return found


def _behind(graph: JobGraph, sink: str) -> list[Vertex]:
    todo, seen = [sink], dict[str, Vertex]()
    while todo:
        vertex = graph.by_name[todo.pop()]
        if vertex.name not in seen:
            seen[vertex.name] = vertex
            todo += inputs_of(vertex)
    return list(seen.values())


def _of_sources(sources: list[Source], leaves: set[str]) -> dict[str, set[str]]:
    """Which scan is that of which source, where that is certain."""
    if len(sources) == 1:
        return {sources[0].name: leaves}
    found: dict[str, set[str]] = {}
    for source in sources:
        mark = _NOISE.sub("", source.path.rstrip("/*")) if source.path else f"{source.format}stream"
        matching = {leaf for leaf in leaves if mark.lower() in leaf.lower()}
        if len(matching) == 1:
            found[source.name] = matching
    taken = set().union(*found.values())
    rest = [s.name for s in sources if s.name not in found]
    if len(rest) == 1 and len(taken) == len(found):
        found[rest[0]] = leaves - taken
    return found


def _into_sink(graph: JobGraph, sink: Sink) -> dict[str, str]:
    return {sink.input: REBALANCE} if sink.parallelism else _spread(graph, {sink.input: FORWARD})


def _spread(graph: JobGraph, words: dict[str, str]) -> dict[str, str]:
    """A vertex with a parallelism of its own spreads its rows anew."""
    spread = {name for name in words if graph.by_name[name].parallelism}
    return {name: REBALANCE if word == FORWARD and name in spread else word for name, word in words.items()}


def _words(plan: list[PlanLine], before: Counter[str], inputs: Mapping[str, set[str]]) -> dict[str, str]:
    """For each input of a vertex, what its plan does to it; `inputs` has the leaves of each, `before` what they do."""
    own: list[tuple[int, PlanLine]] = []
    for at, node in enumerate(plan):
        if node.exchange and not before[node.text]:
            own.append((at, node))
        elif node.exchange:
            before[node.text] -= 1
    words: dict[str, str] = {}
    for at, node in own:
        below = {n.text for n in _leaves(_subtree(plan, at))}
        fed = [name for name, those in inputs.items() if below & those]
        if len(fed) != 1 and node.exchange == BROADCAST:
            return {}  # which side it is of cannot be told
        for name in fed or inputs:
            assert node.exchange is not None
            words.setdefault(name, node.exchange)
    return {name: words.get(name, FORWARD) for name in inputs}


def _subtree(plan: list[PlanLine], at: int) -> list[PlanLine]:
    end = next((n for n in range(at + 1, len(plan)) if plan[n].depth <= plan[at].depth), len(plan))
    return plan[at:end]


def _leaves(plan: list[PlanLine]) -> Iterator[PlanLine]:
    for node, following in zip(plan, [*plan[1:], None], strict=True):
        if following is None or following.depth <= node.depth:
            yield node


def plans_of(graph: JobGraph, frames: Mapping[str, Any]) -> dict[str, str]:
    """The plan of every vertex but the sinks, as Spark would run it. Nothing of a graph that is too large."""
    if len(graph.vertices) > MOST_VERTICES:
        return {}
    names = [v.name for v in graph.vertices if not isinstance(v, Sink) and v.name in frames]
    return {name: frames[name]._explain_string(mode="simple") for name in names}


def plan_of_query(query: Any) -> str:
    """Of a streaming query, the plan of its last batch."""
    from pyspark.sql.connect.proto import StreamingQueryCommand

    command = StreamingQueryCommand()
    command.explain.extended = False
    return str(query._execute_streaming_query_cmd(command).explain.result)

"""Graphs."""

from __future__ import annotations

import random
from typing import Any

from .base import Family, Parameters, by_size


def _draw_edges(rng: random.Random, size: int, *, weighted: bool = False) -> tuple[int, list[list[int]]]:
    """Returns the number of nodes, and different edges [u, v] or [u, v, weight] between them."""
    nodes = by_size(size, (2, 5, 8, 14)) + rng.randint(0, 2)
    pairs = {(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(round(1.6 * nodes))}
    edges = sorted([u, v] for u, v in pairs if u != v)
    return nodes, [[*edge, rng.randint(1, 30)] for edge in edges] if weighted else edges


def _draw_roads(rng: random.Random, p: Parameters, size: int) -> str:
    nodes, edges = _draw_edges(rng, size, weighted=True)
    lines = [f"{nodes} {len(edges)}", *(" ".join(map(str, edge)) for edge in edges)]
    return "\n".join(lines)


def _roads_text(p: Parameters) -> str:
    return (
        "Read n and m in one line, and then m lines `u v w`: a road between the towns u and v (numbered from 0 to n-1) "
        "of length w, which can be used in "
        f"{'one direction only, from u to v' if p['ONE_WAY'] else 'both directions'}. Every use of a road costs its "
        f"length and a toll of {p['TOLL']}; entering a town whose number is divisible by {p['EVERY']} costs "
        f"{p['ENTRY']} more. Print the lowest cost of a way from town 0 to town n-1, or -1 when there is none."
    )


def _groups_text(p: Parameters) -> str:
    result = "the sizes of these groups, the largest first" if p["SIZES"] else "the smallest number of each, in order"
    return (
        "There are n people, numbered from 0, and a list of pairs [u, v] of friends. A pair counts only when u and v "
        f"differ by at most {p['NEAR']} and their sum is not divisible by {p['SKIP']}. Two people are in one group "
        f"when a chain of friends joins them. Take the groups of at least {p['MIN']} people and return {result}."
    )


def _order_text(p: Parameters) -> str:
    extreme = "smallest" if p["SMALL_FIRST"] else "largest"
    return (
        "There are n jobs, numbered from 0, and a list of pairs [u, v]: job u must be done before job v. Pairs where u "
        f"+ v leaves the remainder {p['R']} after division by {p['M']} do not count. Do the jobs one by one, always "
        f"the one with the {extreme} number among those that may be done. Return the list of jobs in that order, or an "
        "empty list when not all can be done."
    )


def _reach_text(p: Parameters) -> str:
    how = "from u to v" if p["ONE_WAY"] else "in both directions"
    reached = f"exactly {p['K']}" if p["EXACT"] else f"at most {p['K']}"
    return (
        f"There are n places, numbered from 0, and a list of pairs [u, v]: one can step {how}. Pairs whose sum is "
        f"divisible by {p['SKIP']} are closed. Return the list of all "
        f"places, in rising order, whose shortest way from place {p['START']} has {reached} steps (the place itself "
        "has 0). There are enough places for the start to be one of them."
    )


def _nodes_and_edges(rng: random.Random, p: Parameters, size: int) -> list[Any]:
    nodes, edges = _draw_edges(rng, size)
    return [max(nodes, p.get("START", 0) + 1), edges]


def _draw_forward(rng: random.Random, p: Parameters, size: int) -> list[Any]:
    nodes, edges = _draw_edges(rng, size)
    if rng.random() < 0.2:
        return [nodes, edges]  # there may be cycles
    rank = rng.sample(range(nodes), nodes)
    return [nodes, [sorted(edge, key=lambda job: rank[job]) for edge in edges]]


FAMILIES = (
    Family(
        name="roads",
        draw=lambda r: {
            "TOLL": r.randint(0, 9),
            "ENTRY": r.randint(1, 15),
            "EVERY": r.randint(2, 4),
            "ONE_WAY": r.random() < 0.5,
        },
        statement=_roads_text,
        body="""
            import heapq

            n, m = map(int, input().split())
            roads = [[] for _ in range(n)]
            for _ in range(m):
                u, v, w = map(int, input().split())
                roads[u].append((v, w))
                if not ONE_WAY:
                    roads[v].append((u, w))
            best, queue = {}, [(0, 0)]
            while queue:
                cost, town = heapq.heappop(queue)
                if town in best:
                    continue
                best[town] = cost
                for other, length in roads[town]:
                    heapq.heappush(queue, (cost + length + TOLL + (ENTRY if other % EVERY == 0 else 0), other))
            print(best.get(n - 1, -1))
        """,
        inputs=_draw_roads,
    ),
    Family(
        name="groups",
        draw=lambda r: {
            "NEAR": r.randint(2, 12),
            "SKIP": r.randint(3, 12),
            "MIN": r.randint(1, 3),
            "SIZES": r.random() < 0.5,
        },
        statement=_groups_text,
        fn_name="groups",
        body="""
            def groups(n, pairs):
                leader = list(range(n))

                def find(x):
                    while leader[x] != x:
                        x = leader[x]
                    return x

                for u, v in pairs:
                    if abs(u - v) <= NEAR and (u + v) % SKIP:
                        a, b = sorted((find(u), find(v)))
                        leader[b] = a
                members = {}
                for x in range(n):
                    members.setdefault(find(x), []).append(x)
                large = [g for g in members.values() if len(g) >= MIN]
                return sorted(map(len, large), reverse=True) if SIZES else sorted(map(min, large))
        """,
        inputs=_nodes_and_edges,
    ),
    Family(
        name="job_order",
        draw=lambda r: {"M": (m := r.randint(3, 20)), "R": r.randrange(m), "SMALL_FIRST": r.random() < 0.5},
        statement=_order_text,
        fn_name="job_order",
        body="""
            def job_order(n, pairs):
                needs = {job: set() for job in range(n)}
                for u, v in pairs:
                    if (u + v) % M != R:
                        needs[v].add(u)
                order = []
                while needs:
                    ready = [job for job in needs if not needs[job] - set(order)]
                    if not ready:
                        return []
                    order.append(min(ready) if SMALL_FIRST else max(ready))
                    del needs[order[-1]]
                return order
        """,
        inputs=_draw_forward,
    ),
    Family(
        name="reach",
        draw=lambda r: {
            "K": r.randint(1, 4),
            "START": r.randint(0, 5),
            "SKIP": r.randint(4, 15),
            "EXACT": r.random() < 0.5,
            "ONE_WAY": r.random() < 0.5,
        },
        statement=_reach_text,
        fn_name="reachable",
        body="""
            def reachable(n, pairs):
                steps, frontier = {START: 0}, [START]
                while frontier:
                    place = frontier.pop(0)
                    for u, v in [pair for pair in pairs if sum(pair) % SKIP]:
                        for a, b in [(u, v)] if ONE_WAY else [(u, v), (v, u)]:
                            if a == place and b not in steps:
                                steps[b] = steps[place] + 1
                                frontier.append(b)
                return sorted(p for p in steps if (steps[p] == K if EXACT else steps[p] <= K))
        """,
        inputs=_nodes_and_edges,
    ),
)

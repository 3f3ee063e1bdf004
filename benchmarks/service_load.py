"""Load on a service: connections that post one request after the other, from a process of its own.

Prints the answers per second and the latencies as JSON. Arguments: port, path, key, connections,
seconds, rows in a request (1: single decisions), prefix of ids.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

WORDS = ["a", "b"]


def features(k: int) -> dict[str, float | str]:
    """Ten features: eight numbers and two words."""
    numbers = {f"number{j}": (k * 7919 + j * 104_729) % 1000 / 10 for j in range(8)}
    return numbers | {"word0": WORDS[k % 2], "word1": WORDS[k // 2 % 2]}


def application(identifier: str, k: int) -> dict[str, object]:
    return {"application_id": identifier, "subject_id": f"P-{identifier}", "features": features(k)}


class Connection(asyncio.Protocol):
    """Posts as soon as it has an answer."""

    def __init__(self, bodies, head: bytes, latencies: list[float], end: float) -> None:
        self.bodies, self.head, self.latencies, self.end = bodies, head, latencies, end
        self.received = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.post()

    def post(self) -> None:
        body = next(self.bodies)
        self.started = time.perf_counter()
        self.transport.write(self.head + b"%d\r\n\r\n" % len(body) + body)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, rest = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        lowered = head.lower()
        at = lowered.index(b"content-length:") + 15
        if len(rest) < int(lowered[at:].split(b"\r\n", 1)[0]):
            return
        if not head.startswith(b"HTTP/1.1 20"):
            self.done.set_exception(RuntimeError(self.received.decode()))
            return
        self.received = b""
        now = time.perf_counter()
        self.latencies.append(now - self.started)
        if now < self.end:
            self.post()
        else:
            self.done.set_result(None)

    def connection_lost(self, error) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError("the connection was closed"))


def bodies(prefix: str, connection: int, rows: int):
    """Applications with ids of their own, made as they are needed: 64 are kept as text."""
    texts = [json.dumps(application("@", k)) for k in range(64)]
    count = 0
    while True:
        some = []
        for _ in range(rows):
            some.append(texts[count % 64].replace("@", f"{prefix}-{connection}-{count}"))
            count += 1
        text = some[0] if rows == 1 else '{"applications": [' + ",".join(some) + "]}"
        yield text.encode()


async def main() -> None:
    port, path, key, connections, seconds, rows, prefix = sys.argv[1:]
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    ).encode()
    latencies: list[float] = []
    loop, started = asyncio.get_running_loop(), time.perf_counter()
    end = started + float(seconds)
    made = [
        await loop.create_connection(
            lambda k=k: Connection(bodies(prefix, k, int(rows)), head, latencies, end),
            "127.0.0.1",
            int(port),
        )
        for k in range(int(connections))
    ]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    elapsed = time.perf_counter() - started
    latencies.sort()
    p99 = latencies[int(len(latencies) * 0.99)]
    print(json.dumps({"rate": len(latencies) * int(rows) / elapsed, "p99": p99,
                      "requests": len(latencies)}))  # fmt: skip


if __name__ == "__main__":
    uvloop.run(main())

"""Load: a process whose threads post applications, and write down what was answered.

It ends with SIGTERM, and by itself after two minutes. Arguments: address, key, file for answers,
number of threads, prefix of ids.
"""

from __future__ import annotations

import http.client
import json
import signal
import sys
import threading
import time
from urllib.parse import urlsplit

FEATURES = {"income": 2100, "debt": 500.5, "purpose": "car"}


def main() -> None:
    address, key, file, threads, prefix = sys.argv[1:]
    end, stopped = time.monotonic() + 120.0, threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    lock = threading.Lock()
    with open(file, "a", buffering=1) as answers:

        def post(number: int) -> None:
            at = urlsplit(address)
            connection = http.client.HTTPConnection(at.hostname, at.port, timeout=10)
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            count = 0
            while time.monotonic() < end and not stopped.is_set():
                identifier = f"{prefix}-{number}-{count}"
                body = json.dumps({"application_id": identifier, "features": FEATURES})
                try:
                    connection.request("POST", at.path, body, headers)
                    answer = connection.getresponse()
                    told = answer.read().decode()
                except (OSError, http.client.HTTPException):  # sent, but not acknowledged
                    line = f"{identifier}\t0\t\n"
                    connection.close()
                    time.sleep(0.02)
                else:
                    line = f"{identifier}\t{answer.status}\t{told}\n"
                with lock:
                    answers.write(line)
                count += 1

        posting = [threading.Thread(target=post, args=(k,)) for k in range(int(threads))]
        for each in posting:
            each.start()
        for each in posting:
            while each.is_alive():
                each.join(0.1)  # so that the signal is heard


if __name__ == "__main__":
    main()

"""A limit from Python, without a library: the command of redis-cell over a socket.

    python3 client.py ADDRESS PORT KEY    30 a minute, 16 at once
"""
import socket
import sys


class Limits:
    """One connection to hybridlimit serve. Give each thread its own."""

    def __init__(self, address, port, timeout=1.0):
        self.socket = socket.create_connection((address, port), timeout)
        self.replies = self.socket.makefile("rb")

    def throttle(self, key, max_burst, count, period, quantity=1):
        """Returns (limited, limit, remaining, retry, reset), the last two in seconds."""
        words = [b"CL.THROTTLE", key.encode()] + [b"%d" % n for n in (max_burst, count, period, quantity)]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        head = self.line()
        if head != b"*5":
            raise RuntimeError(head.decode())  # an error, such as -ERR …
        return tuple(int(self.line()[1:]) for _ in range(5))  # each is :number

    def line(self):
        text = self.replies.readline()
        if not text.endswith(b"\r\n"):
            raise ConnectionError("the connection has ended")
        return text[:-2]


if __name__ == "__main__":
    limited, limit, remaining, retry, reset = Limits(sys.argv[1], int(sys.argv[2])).throttle(sys.argv[3], 15, 30, 60)
    print(f"refused, again in {retry} s" if limited else f"admitted, {remaining} of {limit} left")
    sys.exit(limited)

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Runs commands on the other machine of a pair, for test/guest/helpers/wire.sh. It trusts every peer that connects, so
# it is only for test machines without a network.
#
#   agent.py serve PORT                    takes commands until it is ended
#   agent.py run HOST PORT COMMAND...      prints the output here, and ends with the command's exit status
#
# Protocol: the request has the arguments, each ended by a zero byte, and one more zero byte. The reply has the output,
# a zero byte and the status. When the connection is lost the command is ended.
"""Remote commands for tests."""

import os
import selectors
import signal
import socket
import socketserver
import subprocess
import sys


def read_command(sock):
    data = b""
    while not data.endswith(b"\0\0"):
        more = sock.recv(65536)
        if not more:
            return []
        data += more
    return data[:-2].split(b"\0")


def copy_output(process, sock):
    """Copy until the output or the connection ends."""
    pipe = process.stdout.fileno()
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        ready.register(sock, selectors.EVENT_READ)
        while True:
            names = [key.fileobj for key, _ in ready.select()]
            if pipe in names:
                data = os.read(pipe, 65536)
                if not data:
                    return
                sock.sendall(data)
            elif sock in names:
                raise ConnectionError("the other side left")


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        command = read_command(self.request)
        if not command:
            return
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            self.request.sendall(f"{error}\n\0127".encode())
            return
        try:
            copy_output(process, self.request)
            self.request.sendall(b"\0%d" % (process.wait() & 0xff))
        except ConnectionError:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True


def run(host, port, command):
    data = b""
    with socket.create_connection((host, port), timeout=10) as sock:
        sock.settimeout(None)
        sock.sendall(b"\0".join(os.fsencode(word) for word in command) + b"\0\0")
        while more := sock.recv(65536):
            data += more
            # Text has no zero bytes, so the first one begins the status.
            text, _, rest = data.partition(b"\0")
            os.write(1, text)
            data = b"\0" + rest if b"\0" in data else b""
    return int(data[1:]) if len(data) > 1 else 255


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        Server(("", int(sys.argv[2])), Handler).serve_forever()
    sys.exit(run(sys.argv[2], int(sys.argv[3]), sys.argv[4:]))

"""The command `profagentd`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys

from profagentd import __version__
from profagentd.board import Board
from profagentd.clock import SystemClock
from profagentd.describe import identify
from profagentd.server import Server
from profagentd.servicer import Servicer
from profagentd.supervisor import until_first
from profagentd.watch import Watch


async def _serve(args: argparse.Namespace) -> None:
    clock = SystemClock()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    board = Board(clock, args.quiet_after)
    watch = Watch([os.fsencode(os.path.realpath(root)) for root in args.root], 4, clock, board)
    server = Server(Servicer(board, watch, clock, identify(), args.quiet_after, simulated=False))
    address = await server.start(args.listen)
    print(f"profagentd {__version__} serving {address}", flush=True)
    try:
        await until_first(watch.run(), board.keep_states(), _wait(stop))
    finally:
        await server.stop()


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


def main() -> int:
    parser = argparse.ArgumentParser("profagentd")
    parser.add_argument("--root", action="append", required=True)
    parser.add_argument("--listen", default="127.0.0.1:50151")
    parser.add_argument("--quiet-after", type=float, default=60.0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    asyncio.run(_serve(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())

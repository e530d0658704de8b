"""What holds for the daemon's tests: they start processes while gRPC runs in their own."""

from __future__ import annotations

import os

# gRPC's fork handlers would run in each child before it becomes another program, and abort some of them.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

"""Where the daemon keeps what it writes itself: subscribed operators, marks, metrics. Each spool is a collection."""

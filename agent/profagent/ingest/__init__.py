"""From bytes of logs to durable rows: mirror, decoding, and the rule that orders them."""

"""The one decision maker: who leads, who is in sync, what exists. It writes to the store first and tells brokers later.

Reading order: `election`, `isr_change` and `assignment` are expressions on plain data; `cluster` is what the controller
knows; `controller` decides; `outboxes` says what brokers have yet to hear; `executor` is the serial loop around them.
"""

"""The client: a pure core that routes, retries and keeps order, and the blocking objects that people use around it."""

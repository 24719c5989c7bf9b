"""The simulator: a whole cluster of the real library on virtual time, under faults that one seed decides."""

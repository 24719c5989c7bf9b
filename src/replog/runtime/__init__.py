"""What makes actors run: loops, threads, clocks and sockets."""

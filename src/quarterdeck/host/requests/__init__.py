"""What agents request of their host, and of people: files, terminals, permissions, elicitations."""

"""What ran: hardware, software and environment, without anything that names a host or a user."""

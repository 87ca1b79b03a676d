"""What is compared with the network, behind one protocol, and the records of the table that compares them."""

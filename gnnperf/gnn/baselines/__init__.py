"""Everything that answers beside the network, behind one protocol, and the cells of the table that compares them."""

"""This broker's side of KRaft: what it asks of the controllers, and what it follows of them."""

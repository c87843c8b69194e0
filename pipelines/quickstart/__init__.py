"""The main job of the README: sample orders in, orders with their gross amount out."""

"""What the makers of the package use, and its users do not."""

"""What figures say: pure, arrays in, values out."""

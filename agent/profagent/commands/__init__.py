"""What each command does, without its options and its terminal."""

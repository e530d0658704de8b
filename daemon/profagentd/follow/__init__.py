"""Finding logs, following them, and sending what grows in them."""

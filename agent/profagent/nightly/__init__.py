"""A night's run over boards: its settings, what is called for each board, and its verdict; runs nothing itself."""

"""Who is asked where no terminal is: somebody with the answers ready, or nobody."""

from __future__ import annotations


class Nobody:
    """Nobody is there to answer."""

    async def confirm(self, question: str) -> bool | None:
        return None

    async def secret(self, prompt: str) -> str | None:
        return None


class Ready:
    """Gives one secret, and yes; keeps what was asked."""

    def __init__(self, secret: str | None = None) -> None:
        self.asked: list[str] = []
        self._secret = secret

    async def confirm(self, question: str) -> bool | None:
        self.asked.append(question)
        return True

    async def secret(self, prompt: str) -> str | None:
        self.asked.append(prompt)
        return self._secret

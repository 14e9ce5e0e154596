"""What methods share to which every site sends something once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

from strategies.base import Agreement
from strategies.rounds import AskAll, Run

U = TypeVar("U")


class OneUpload(AskAll[Mapping[str, U]]):
    """One exchange, of which is kept what every site has sent.

    Attributes
    ----------
    ask_type, answer_type : type
        The question, which has no more than the scaling, and its answer.
    word : str
        For the exchange.
    """

    ask_type: type
    answer_type: type
    word: str

    @abstractmethod
    def kept(self, answer: Any) -> U:
        """Return what is kept of an answer."""

    def first(self, agreement: Agreement) -> Mapping[str, U]:
        """Start with nothing."""
        return {}

    def phase(self, run: Run[Mapping[str, U]]) -> str:
        """Say what is asked."""
        return self.word

    def question(self, run: Run[Mapping[str, U]]) -> tuple[Any, type, dict[str, int]]:
        """Ask once."""
        return self.ask_type(**vars(run.agreement.scaling)), self.answer_type, {}

    def take(self, run: Run[Mapping[str, U]], answers: Mapping[str, Any]) -> Mapping[str, U]:
        """Keep what every site sent."""
        return {name: self.kept(answer) for name, answer in answers.items()}

    def stopped_by(self, kernel: Mapping[str, U]) -> str:
        """Stop after the one exchange."""
        return "one upload" if kernel else "running"

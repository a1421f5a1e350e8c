"""Games of TextArena that are not tasks of this bridge. Its ids that end on `-train` and `-raw` are other wrappers."""

from __future__ import annotations

from collections.abc import Mapping

_ONE_TASK = "all seeds make the same task, so training and test would share it"
_WORDS = "it needs word lists that nltk downloads"
_MODEL = "it needs a model behind OpenRouter"
_TALK = "a random opponent does not talk or negotiate"
_SEVERAL = "it has more than two players"
_NO_PLAYER = "the bridge has neither a solution nor the possible actions of the game"
_SYNTAX = "TextArena 0.7.4 has a syntax error in it for Python below 3.12"
_LONG = "random play hardly ever wins in 64 actions"

REFUSED: Mapping[str, str] = {
    r"2048-v0(-super-easy|-very-easy|-easy|-hard|-very-hard|-extreme|-\d+x\d+)?": _LONG,
    r"PigDice-v0-(long|[1-9]50|[2-5]00)": _LONG,
    r"Othello-v0-huge": "a game takes more than 64 actions of each player",
    r"Bandit-.*": "its grader compares the button with the table of all chances, so no answer wins",
    r"(Countdown|Cryptarithm|PegJump|TowerOfHanoi)-.*": _ONE_TASK,
    r"(Crosswords|DontSayIt|Hangman|LetterAuction|SpellingBee|WordChains|WordLadder|WordSearch|Wordle)-.*": _WORDS,
    r"(Debate|GuessWho|ScenarioPlanning|TwentyQuestions)-.*": _MODEL,
    r"(Checkers|Chess|IteratedStagHunt|Klondike|ReverseTicTacToe)-.*": _SYNTAX,
    r"(IteratedPrisonersDilemma|IteratedUltimatumGame|NewRecruit|ScorableGames|SimpleBlindAuction)-.*": _TALK,
    r"(SimpleNegotiation|Taboo|TruthAndDeception|TwoDollar|UsedCar(Negotiation)?)-.*": _TALK,
    r"(CharacterConclave|Codenames|MarketEntryGame|PublicGoodsGame|SecretMafia|SettlersOfCatan|ThreePlayer\w+)-.*": (
        _SEVERAL
    ),
    r"(Blackjack|FifteenPuzzle|LogicPuzzle|RushHour|Set|Slitherlink|Sokoban|UltimateTexasHoldem)-.*": _NO_PLAYER,
    r"(Alquerque|Battleship|Briscola|ColonelBlotto|Crusade|GermanWhist|Golf|HighSociety|IndianPoker)-.*": _NO_PLAYER,
    r"(IteratedTwoThirdsAverage|LinesOfAction|MemoryGame|Poker|QuantumTicTacToe|SantoriniBaseFixed)-.*": _NO_PLAYER,
    r"(SpiteAndMalice|Stratego|Tak|BabyAiText)-.*": _NO_PLAYER,
}
"""Pattern of ids -> reason."""

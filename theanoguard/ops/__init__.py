"""Operations for the user's own graphs: ``Print`` and ``Assert``."""
